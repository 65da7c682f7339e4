"""The module with ``impl="triton"`` over a wrap; `test_ring_module_kernels.py` runs it in a process."""

from __future__ import annotations

import torch
from ring_calls import close, cut, dense, inputs, model
from triton_interpreter import DEVICE


def test_prefill_chunks_and_steps_by_the_kernels_equal_the_reference():
    q, k, v = inputs(60, batch=1, heads=2, kv_heads=1, dim=8, dtype=torch.float32)
    bits = torch.zeros(1, 60, dtype=torch.bool)
    bits[0, 47:49] = True
    want, _ = dense(q, k, v, window=10, padding=bits)
    ring = model(
        num_heads=2, num_kv_heads=1, head_dim=8, buffer_size=10, prefill_size=16, tile_size=16, block_size=16,
        impl="triton",
    )  # fmt: skip
    q, k, v, bits = (x.to(DEVICE) for x in (q, k, v, bits))
    state = ring.new_state(1, device=DEVICE)
    for t in cut([20, 26, 1, 12, 1]):  # 48 slots
        given = bits[:, t] if 47 in range(t.start, t.stop) else None
        out = ring(
            q[:, :, t], k[:, :, t], v[:, :, t], False, key_padding_mask=given, is_decoder=True,
            buffer_state=state,
        )  # fmt: skip
        close(out.cpu(), want[:, :, t], 2e-6)
