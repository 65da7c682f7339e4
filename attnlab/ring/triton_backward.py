"""The backward kernels: gradients without a table of weights, and without atomic additions.

With P = exp(S - LSE) computed again tile by tile, the equations are, for one query row::

    dV += P^T dO        dP = dO V^T        dS = P * (dP - delta)        dQ += dS K        dK += dS^T Q
    delta = sum(dO * O) - dLSE

(FlashAttention-2, Dao 2023, https://arxiv.org/abs/2307.08691; dLSE is the gradient of the log-sum-exp, where
someone uses it.) Sums over keys and sums over queries want opposite loops, so there are two kernels, each of
which owns what it writes. ``query_gradients`` is Q-major: a program keeps the dQ of a tile of queries while
keys stream past, and leaves delta behind for the other. ``key_gradients`` is K-major: it keeps dK and dV of a
tile of keys while the queries that see them stream past, all heads of the group among them. Sums are in
float32. The scores' scale carries log2(e), so P is a power of two of (scaled score - LSE * log2(e)).
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from attnlab.ring.triton_tiles import key_tiles, load_tile, query_tiles, store_tile, visible

_PLAIN = ["tokens", "window"]


@triton.jit
@no_type_check
def _query_gradient_tile(
    tile,
    dq,
    q,
    dout,
    lse,
    delta,
    positions,
    oldest,
    newest,
    k,
    v,
    k_strides,
    v_strides,
    scale,
    window,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Add what one tile of keys gives to dQ."""
    place = tl.arange(0, BLOCK_K)
    keys = tile * BLOCK_K + place
    inside = (keys >= oldest) & (keys <= newest)
    start = tl.cast(tile * BLOCK_K, tl.int64)
    k_tile = load_tile(
        k + start * k_strides[2], place * k_strides[2], k_strides[3], inside, EDGE, HEAD_DIM, BLOCK_D
    )
    v_tile = load_tile(
        v + start * v_strides[2], place * v_strides[2], v_strides[3], inside, EDGE, HEAD_DIM, BLOCK_D
    )
    weights = tl.exp2(tl.dot(q, tl.trans(k_tile), input_precision="ieee") * scale - lse[:, None])
    if EDGE:
        seen = visible(positions[:, None], keys[None, :], window, CAUSAL) & inside[None, :]
        weights = tl.where(seen, weights, 0.0)
    dweights = tl.dot(dout, tl.trans(v_tile), input_precision="ieee")
    dscores = weights * (dweights - delta[:, None])
    return tl.dot(dscores.to(k_tile.dtype), k_tile, dq, input_precision="ieee")


@triton.jit(do_not_specialize=_PLAIN)
@no_type_check
def query_gradients(
    q,  # [B, Hq, tokens, D]
    k,  # [B, Hkv, tokens, D]
    v,
    out,  # as q
    dout,
    lse,  # [B, Hq, tokens] float32, contiguous, as are dlse and delta
    dlse,  # read if DLSE
    delta,  # written for key_gradients
    dq,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    dout_strides,
    dq_strides,
    scale,  # log2(e) / sqrt(D)
    kv_heads,
    tokens,
    window,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    DLSE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid: (tiles of queries * B * Hkv,)."""
    tiles = tl.cdiv(tokens * GROUP, BLOCK_Q)
    program = tl.program_id(0)
    q_tile = program % tiles
    batch = (program // tiles // kv_heads).to(tl.int64)
    head = (program // tiles % kv_heads).to(tl.int64)

    packed = q_tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row = packed // GROUP
    q_head = head * GROUP + packed % GROUP
    inside = row < tokens
    far = row.to(tl.int64)
    q_rows = q_head * q_strides[1] + far * q_strides[2]
    q_block = load_tile(q + batch * q_strides[0], q_rows, q_strides[3], inside, True, HEAD_DIM, BLOCK_D)
    rows = q_head * dout_strides[1] + far * dout_strides[2]
    dout_block = load_tile(
        dout + batch * dout_strides[0], rows, dout_strides[3], inside, True, HEAD_DIM, BLOCK_D
    )
    rows = q_head * out_strides[1] + far * out_strides[2]
    out_block = load_tile(out + batch * out_strides[0], rows, out_strides[3], inside, True, HEAD_DIM, BLOCK_D)

    row_number = (batch * kv_heads * GROUP + q_head) * tokens + row
    # Past the last row the weights are 2**(0 - inf) = 0.
    lse_rows = tl.load(lse + row_number, mask=inside, other=float("inf")) * 1.4426950408889634
    delta_rows = tl.sum(dout_block.to(tl.float32) * out_block.to(tl.float32), 1)
    if DLSE:
        delta_rows -= tl.load(dlse + row_number, mask=inside, other=0.0)
    tl.store(delta + row_number, delta_rows, mask=inside)

    k += batch * k_strides[0] + head * k_strides[1]
    v += batch * v_strides[0] + head * v_strides[1]
    first = q_tile * BLOCK_Q // GROUP
    last = tl.minimum((q_tile * BLOCK_Q + BLOCK_Q - 1) // GROUP, tokens - 1)
    oldest, newest, begin, dense, edge, end = key_tiles(first, last, tokens, window, CAUSAL, BLOCK_K)
    total = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for tile in tl.range(begin, dense):  # the window's far edge
        total = _query_gradient_tile(
            tile, total, q_block, dout_block, lse_rows, delta_rows, row, oldest, newest, k, v, k_strides,
            v_strides, scale, window, True, CAUSAL, HEAD_DIM, BLOCK_K, BLOCK_D,
        )  # fmt: skip
    for tile in tl.range(dense, edge):  # every key seen
        total = _query_gradient_tile(
            tile, total, q_block, dout_block, lse_rows, delta_rows, row, oldest, newest, k, v, k_strides,
            v_strides, scale, window, False, CAUSAL, HEAD_DIM, BLOCK_K, BLOCK_D,
        )  # fmt: skip
    for tile in tl.range(edge, end):  # the diagonal
        total = _query_gradient_tile(
            tile, total, q_block, dout_block, lse_rows, delta_rows, row, oldest, newest, k, v, k_strides,
            v_strides, scale, window, True, CAUSAL, HEAD_DIM, BLOCK_K, BLOCK_D,
        )  # fmt: skip
    total *= scale * 0.6931471805599453  # back to 1 / sqrt(D)
    rows = q_head * dq_strides[1] + far * dq_strides[2]
    store_tile(dq + batch * dq_strides[0], rows, dq_strides[3], total, inside, HEAD_DIM, BLOCK_D)


@triton.jit
@no_type_check
def _key_gradient_tile(
    tile,
    dk,
    dv,
    k,
    v,
    keys,
    q,
    dout,
    lse,
    delta,
    q_strides,
    dout_strides,
    scale,
    tokens,
    window,
    EDGE: tl.constexpr,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Add what one tile of packed queries gives to dK and dV. Tables are transposed: [keys, queries]."""
    packed = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row = packed // GROUP
    far = row.to(tl.int64)
    member = (packed % GROUP).to(tl.int64)
    inside = row < tokens
    q_rows = member * q_strides[1] + far * q_strides[2]
    q_tile = load_tile(q, q_rows, q_strides[3], inside, EDGE, HEAD_DIM, BLOCK_D)
    row_number = member * tokens + row
    if EDGE:
        lse_rows = tl.load(lse + row_number, mask=inside, other=float("inf"))
        delta_rows = tl.load(delta + row_number, mask=inside, other=0.0)
    else:
        lse_rows = tl.load(lse + row_number)
        delta_rows = tl.load(delta + row_number)
    scores = tl.dot(k, tl.trans(q_tile), input_precision="ieee") * scale
    weights = tl.exp2(scores - (lse_rows * 1.4426950408889634)[None, :])
    if EDGE:
        seen = visible(row[None, :], keys[:, None], window, CAUSAL) & inside[None, :]
        weights = tl.where(seen, weights, 0.0)
    rows = member * dout_strides[1] + far * dout_strides[2]
    dout_tile = load_tile(dout, rows, dout_strides[3], inside, EDGE, HEAD_DIM, BLOCK_D)
    dv = tl.dot(weights.to(dout_tile.dtype), dout_tile, dv, input_precision="ieee")
    dweights = tl.dot(v, tl.trans(dout_tile), input_precision="ieee")
    dscores = weights * (dweights - delta_rows[None, :])
    dk = tl.dot(dscores.to(q_tile.dtype), q_tile, dk, input_precision="ieee")
    return dk, dv


@triton.jit(do_not_specialize=_PLAIN)
@no_type_check
def key_gradients(
    q,  # [B, Hq, tokens, D]
    k,  # [B, Hkv, tokens, D]
    v,
    dout,  # as q
    lse,  # [B, Hq, tokens] float32, contiguous, as is delta
    delta,
    dk,
    dv,
    q_strides,
    k_strides,
    v_strides,
    dout_strides,
    dk_strides,
    dv_strides,
    scale,  # log2(e) / sqrt(D)
    kv_heads,
    tokens,
    window,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid: (tiles of keys * B * Hkv,)."""
    tiles = tl.cdiv(tokens, BLOCK_K)
    program = tl.program_id(0)
    k_tile = program % tiles
    batch = (program // tiles // kv_heads).to(tl.int64)
    head = (program // tiles % kv_heads).to(tl.int64)

    keys = k_tile * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = keys < tokens
    far = keys.to(tl.int64)
    k += batch * k_strides[0] + head * k_strides[1]
    v += batch * v_strides[0] + head * v_strides[1]
    k_block = load_tile(k, far * k_strides[2], k_strides[3], inside, True, HEAD_DIM, BLOCK_D)
    v_block = load_tile(v, far * v_strides[2], v_strides[3], inside, True, HEAD_DIM, BLOCK_D)
    q += batch * q_strides[0] + head * GROUP * q_strides[1]
    dout += batch * dout_strides[0] + head * GROUP * dout_strides[1]
    lse += (batch * kv_heads + head) * GROUP * tokens
    delta += (batch * kv_heads + head) * GROUP * tokens

    first = k_tile * BLOCK_K
    last = tl.minimum(first + BLOCK_K, tokens) - 1
    begin, dense, edge, end = query_tiles(first, last, tokens, window, GROUP, CAUSAL, BLOCK_Q)
    dk_total = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    dv_total = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    for tile in tl.range(begin, dense):  # the diagonal
        dk_total, dv_total = _key_gradient_tile(
            tile, dk_total, dv_total, k_block, v_block, keys, q, dout, lse, delta, q_strides, dout_strides,
            scale, tokens, window, True, GROUP, CAUSAL, HEAD_DIM, BLOCK_Q, BLOCK_D,
        )  # fmt: skip
    for tile in tl.range(dense, edge):  # every key seen
        dk_total, dv_total = _key_gradient_tile(
            tile, dk_total, dv_total, k_block, v_block, keys, q, dout, lse, delta, q_strides, dout_strides,
            scale, tokens, window, False, GROUP, CAUSAL, HEAD_DIM, BLOCK_Q, BLOCK_D,
        )  # fmt: skip
    for tile in tl.range(edge, end):  # the window's far edge
        dk_total, dv_total = _key_gradient_tile(
            tile, dk_total, dv_total, k_block, v_block, keys, q, dout, lse, delta, q_strides, dout_strides,
            scale, tokens, window, True, GROUP, CAUSAL, HEAD_DIM, BLOCK_Q, BLOCK_D,
        )  # fmt: skip
    dk_total *= scale * 0.6931471805599453  # back to 1 / sqrt(D)
    dk += batch * dk_strides[0] + head * dk_strides[1]
    dv += batch * dv_strides[0] + head * dv_strides[1]
    store_tile(dk, far * dk_strides[2], dk_strides[3], dk_total, inside, HEAD_DIM, BLOCK_D)
    store_tile(dv, far * dv_strides[2], dv_strides[3], dv_total, inside, HEAD_DIM, BLOCK_D)
