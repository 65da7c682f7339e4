"""The Triton kernels: their cases under the interpreter, what they compile to, and runs on a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from attnlab.ring import triton as path
from attnlab.ring import triton_blocks, triton_launch, window
from attnlab.ring.cache import RingCache
from attnlab.ring.reference import sliding_window_attention as reference

CASES = ["window", "ring"]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="there is no Triton for this system")


def run_cases(request: pytest.FixtureRequest, name: str, **environment: str) -> None:
    """Run a file of cases in a process of its own, with the same shape checks as here."""
    checkout = request.getfixturevalue("checkout")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"]
    if packages := request.config.getoption("--jaxtyping-packages", default=None):
        command += [f"--jaxtyping-packages={packages}", "-m", "not unchecked"]
    command.append(str(checkout / "tests" / "ring" / f"triton_cases_{name}.py"))
    ran = subprocess.run(command, cwd=checkout, env=os.environ | environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\d+ passed", ran.stdout) and "skipped" not in ran.stdout


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_the_cases_pass_under_the_interpreter(request, name):
    run_cases(request, name, TRITON_INTERPRET="1", OMP_NUM_THREADS="1")


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_the_cases_pass_on_a_gpu(request, name):
    run_cases(request, name, TRITON_INTERPRET="0")


# --- Without running: imports, doors, compilation -----------------------------------------------------------


def test_nothing_is_imported_before_a_kernel_runs():
    script = "import sys, attnlab.ring.window, attnlab.ring.triton; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_where_triton_is_missing_the_message_says_so(monkeypatch):
    monkeypatch.setattr(
        triton_launch, "find_spec", lambda name: None if name == "triton" else find_spec(name)
    )
    q = torch.ones(1, 1, 4, 8)
    with pytest.raises(
        ValueError, match=r"need the package triton.*'reference', 'tiled' and 'strided' would"
    ):
        window.sliding_window_attention(q, q, q, window=2, impl="triton")
    with pytest.raises(ValueError, match="the Triton kernels need the package triton, and it is not"):
        path.ring_attention(q, q, q, window=1, written=4)


def test_every_head_dim_has_sizes():
    for kernel in ("forward", "query_gradients", "key_gradients"):
        for dtype in triton_blocks.DTYPES:
            widest = triton_blocks.choose(kernel, dtype, 1)
            for head_dim in (16, 17, 64, 80, 128, 256, 300, 1000):
                blocks = triton_blocks.choose(kernel, dtype, head_dim)
                assert 16 <= blocks.queries <= widest.queries and 16 <= blocks.keys <= widest.keys
    assert [triton_blocks.padded_head_dim(d) for d in (1, 16, 17, 64, 80)] == [16, 16, 32, 64, 128]


@pytest.fixture
def compiled(monkeypatch):
    """Kernels that were launched are compiled for an H100 and put in this dict, and nothing is run."""
    if torch.cuda.is_available():
        pytest.skip("here the kernels are run")
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    class Driver:
        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 0

    found = {}
    run = JITFunction.run

    def compile_only(self, *args, grid, warmup, **options):
        found[self.__name__] = run(self, *args, grid=grid, warmup=True, **options)

    monkeypatch.setattr(driver, "_active", Driver())
    monkeypatch.setattr(JITFunction, "run", compile_only)
    monkeypatch.setattr(triton_launch, "obstacle", lambda dtype, device: None)
    return found


@needs_triton
@pytest.mark.unchecked
def test_kernels_compile_for_a_gpu_and_compare_nothing_in_the_dense_loop(compiled):
    q = torch.zeros(1, 4, 512, 64, dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.zeros(1, 2, 512, 64, dtype=torch.bfloat16, requires_grad=True) for _ in "kv")
    out = path.sliding_window_attention(q, k, v, window=100)
    torch.autograd.grad(out, (q, k, v), torch.zeros_like(out))
    assert sorted(compiled) == ["attend", "key_gradients", "query_gradients"]
    for name, kernel in compiled.items():
        assert kernel.metadata.shared <= 227 * 1024, name
        assert "atom" not in kernel.asm["ptx"], name
        far, dense, diagonal = loops(kernel.asm["ttir"])
        for loop in (far, diagonal):
            assert "arith.select" in loop and "arith.cmpi" in loop and masked_loads(loop), name
        assert "tt.dot" in dense and "tt.load" in dense, name
        assert "arith.select" not in dense and "arith.cmp" not in dense and not masked_loads(dense), name


@needs_triton
@pytest.mark.unchecked
def test_decoding_compiles_with_padding_and_without_powers_of_two(compiled):
    cache = RingCache(2, 1, 20, 1024, window=600, dtype=torch.float16)
    cache.append(*torch.zeros(2, 2, 1, 300, 20, dtype=torch.float16))
    q = torch.zeros(2, 3, 1, 20, dtype=torch.float16)
    path.ring_attention(
        q, cache.k, cache.v, window=600, written=300, highest=300, padding=cache.padding, splits=4
    )
    assert sorted(compiled) == ["_merge", "attend"]
    for name, kernel in compiled.items():
        assert kernel.metadata.shared <= 227 * 1024, name


def loops(ttir: str) -> list[str]:
    """The bodies of the outermost loops."""
    lines = ttir.splitlines()
    found, start = [], None
    for number, line in enumerate(lines):
        if start is None and "scf.for" in line:
            start, indent = number, len(line) - len(line.lstrip())
        elif start is not None and line.startswith(" " * indent + "}"):
            found.append("\n".join(lines[start + 1 : number]))
            start = None
    return found


def masked_loads(loop: str) -> list[str]:
    """Loads with more than an address."""
    return [line for line in loop.splitlines() if "tt.load" in line and "," in line.split(":")[0]]


# --- On a GPU -----------------------------------------------------------------------------------------------


def on_gpu(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to("cuda", dtype)


def relative(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_on_a_gpu_the_error_is_that_of_the_dtype(dtype, head_dim, causal):
    shapes = [(1, heads, 1100, head_dim) for heads in (6, 2, 2, 6)]
    q, k, v, dout = (on_gpu(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes))
    options = dict(window=300, causal=causal, return_lse=True)
    results = []
    for function, cast in ((path.sliding_window_attention, dtype), (reference, torch.float64)):
        leaves = [x.to(cast).detach().requires_grad_() for x in (q, k, v)]
        out, lse = function(*leaves, **options)
        results.append((out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, dout.to(out.dtype))))
    limit = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 5e-6}[dtype]
    for name, got, exact in zip(("out", "lse", "dq", "dk", "dv"), *results, strict=True):
        assert relative(got, exact) < limit, name


@pytest.mark.gpu
@pytest.mark.unchecked
def test_on_a_gpu_auto_equals_flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tokens, width = 8192, 1024
    q = on_gpu(2, 8, tokens, 64, dtype=torch.bfloat16, seed=0)
    k, v = (on_gpu(2, 2, tokens, 64, dtype=torch.bfloat16, seed=i) for i in (1, 2))
    seen = create_block_mask(
        lambda b, h, i, j: (i >= j) & (i - j < width), None, None, tokens, tokens, device="cuda"
    )
    expected = torch.compile(flex_attention)(q, k, v, block_mask=seen, enable_gqa=True)
    got = window.sliding_window_attention(q, k, v, window=width)
    assert relative(got, expected.double()) < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [None, 1, 7])
def test_on_a_gpu_decoding_a_large_ring_equals_the_cache(splits):
    cache = RingCache(2, 4, 128, 8192, window=4096, dtype=torch.bfloat16, device="cuda")
    for step in range(5):
        cache.append(*(on_gpu(2, 4, 4000, 128, dtype=torch.bfloat16, seed=2 * step + i) for i in (0, 1)))
    for rows in (1, 3, 700):
        q = on_gpu(2, 16, rows, 128, dtype=torch.bfloat16, seed=99)
        got, lse = path.ring_attention(
            q, cache.k, cache.v, window=4096, written=cache.position, return_lse=True, splits=splits
        )
        expected, lse_expected = cache.attend(q, return_lse=True)
        assert relative(got, expected.double()) < 1e-2
        torch.testing.assert_close(lse, lse_expected, atol=1e-3, rtol=0)
