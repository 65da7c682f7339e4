"""Questions about torch and JAX that the doctor asks in a process of its own.

Starting a framework has effects that outlive the question: JAX reserves most of a GPU's memory, CUDA opens a
context, and a broken installation may end the whole process. ``python -m attnlab.probes NAME`` asks one
question and prints the answer as one line of JSON; `ask` puts several questions at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["PROBES", "ask"]

# A cold start of torch from a slow disk takes tens of seconds, and compiling a first kernel about a minute.
PATIENCE_SECONDS = 300


def probe_torch() -> dict[str, Any]:
    """Version, threads, CUDA devices, and whether FlexAttention can be compiled for this CPU."""
    import torch
    import torch.nn.attention.flex_attention

    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "built_for_cuda": torch.version.cuda,
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        # TorchInductor makes FlexAttention for a CPU only where it has AVX2, and not on macOS.
        "flex_cpu": bool(torch.cpu._is_avx2_supported()) and sys.platform != "darwin",
    }


def probe_jax() -> dict[str, Any]:
    """Version and devices."""
    import jax

    return {
        "version": jax.__version__,
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def probe_pallas() -> dict[str, Any]:
    """Run a Pallas kernel in interpret mode, and say whether its result is right."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas

    def double(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = 2 * x_ref[...]

    x = jnp.arange(8, dtype=jnp.int32)
    doubled = pallas.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)
    return {"right": bool((doubled == 2 * x).all())}


def probe_flex() -> dict[str, Any]:
    """Compile FlexAttention for CUDA, or else for the CPU, and compare it with dense attention."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return q_idx >= kv_idx

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 256, 32, device=device) for _ in range(3))
    mask = create_block_mask(causal, None, None, 256, 256, device=device)
    with torch.no_grad():
        out = torch.compile(flex_attention)(q, k, v, block_mask=mask)
        dense = torch.nn.functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), is_causal=True
        )
    return {"device": device, "largest_error": float((out - dense).abs().max())}


PROBES = {"torch": probe_torch, "jax": probe_jax, "pallas": probe_pallas, "flex": probe_flex}


def ask(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Answers of several probes by name, each from a process of its own, all at the same time.

    Returns
    -------
    dict
        For each name what its probe returned, with ``"error"`` None; or only ``"error"``, one line that tells
        what was raised or how the process ended.
    """
    package_parent = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "attnlab.probes", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )
        for name in names
    }
    return {name: _answer(process) for name, process in running.items()}


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"no answer within {PATIENCE_SECONDS} seconds"}
    try:
        # Libraries may print lines of their own before the answer.
        answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        answer["error"]
    except (IndexError, KeyError, TypeError, ValueError):
        last = err.strip().splitlines()[-1:] or ["nothing was said"]
        return {"error": f"the process ended with status {process.returncode}: {last[0]}"}
    return answer


def main(name: str) -> None:
    """Print the answer of one probe as JSON; what went wrong is an answer too, under ``"error"``."""
    try:
        answer = {"error": None, **PROBES[name]()}
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        answer = {"error": f"{type(error).__name__}: {first_line}"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
