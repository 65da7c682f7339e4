"""The forward kernel: one program holds a tile of queries and their (m, l, O) while keys stream past.

It is `attnlab.ring.tiled` in Q-major order, with two turns of FlashAttention-2 (Dao 2023,
https://arxiv.org/abs/2307.08691): O is divided by l once, at the end, and exponentials are powers of two,
because that is the instruction there is. The scale of the scores carries the factor log2(e), so m counts
powers of two as well until the log-sum-exp is written. Triton's own example of fused attention takes the same
turns (https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html).

The same kernel serves three callers:

- a whole sequence: keys lie in order, one program for each tile of queries;
- a chunk against a ring: the tile of keys at position p lies at slot p mod C. The tile laws of
  `attnlab.ring.laws` say that it does not straddle the end;
- a decode step: so few queries that one program for each key head would leave the chip idle, so the visited
  tiles are dealt out to several programs (`split`), and `attnlab.ring.triton_decode` merges what they found.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from attnlab.ring.triton_tiles import key_tiles, load_tile, store_tile, visible

# Positions change from call to call, and there shall be no new kernel for those that 16 divides.
_PLAIN = ["queries", "position", "keys", "window"]


@triton.jit
@no_type_check
def _attend_tile(
    tile,
    m,
    total,
    o,
    q,
    positions,
    oldest,
    newest,
    k,
    v,
    padding,
    k_strides,
    v_strides,
    padding_strides,
    scale,
    window,
    capacity,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    RING: tl.constexpr,
    PADDED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merge one tile of keys into (m, l, O); `total` is l."""
    place = tl.arange(0, BLOCK_K)
    keys = tile * BLOCK_K + place
    slot = tile * BLOCK_K
    if RING:
        slot = slot % capacity  # positions go on, slots come again
    inside = (keys >= oldest) & (keys <= newest)
    if PADDED:
        inside = inside & (tl.load(padding + (slot + place) * padding_strides[1]) == 0)
    start = tl.cast(slot, tl.int64)
    k_tile = load_tile(
        k + start * k_strides[2],
        place * k_strides[2],
        k_strides[3],
        inside,
        EDGE or PADDED,
        HEAD_DIM,
        BLOCK_D,
    )
    scores = tl.dot(q, tl.trans(k_tile), input_precision="ieee")
    if EDGE:
        seen = visible(positions[:, None], keys[None, :], window, CAUSAL) & inside[None, :]
        scores = tl.where(seen, scores, float("-inf"))
    elif PADDED:
        scores = tl.where(inside[None, :], scores, float("-inf"))

    highest = tl.maximum(m, tl.max(scores, 1) * scale)
    shift = highest
    if EDGE or PADDED:
        shift = tl.where(highest == float("-inf"), 0.0, highest)  # nothing seen yet: -inf - -inf is NaN
    weights = tl.exp2(scores * scale - shift[:, None])
    shrink = tl.exp2(m - shift)
    total = total * shrink + tl.sum(weights, 1)
    v_tile = load_tile(
        v + start * v_strides[2],
        place * v_strides[2],
        v_strides[3],
        inside,
        EDGE or PADDED,
        HEAD_DIM,
        BLOCK_D,
    )
    o = tl.dot(weights.to(v_tile.dtype), v_tile, o * shrink[:, None], input_precision="ieee")
    return highest, total, o


@triton.jit(do_not_specialize=_PLAIN)
@no_type_check
def attend(
    q,  # [B, Hq, queries, D]
    k,  # [B, Hkv, keys or capacity, D]
    v,
    padding,  # [B, capacity], not 0 where a key is padding; read if PADDED
    out,  # [splits, B, Hq, queries, D]
    lse,  # [splits, B, Hq, queries] float32
    q_strides,
    k_strides,
    v_strides,
    padding_strides,
    out_strides,
    lse_strides,
    scale,  # log2(e) / sqrt(D)
    kv_heads,
    queries,
    position,  # of the first query
    keys,  # positions 0 to keys - 1 have been written
    window,
    capacity,  # read if RING
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    RING: tl.constexpr,
    PADDED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid: (tiles of queries * B * Hkv, splits)."""
    tiles = tl.cdiv(queries * GROUP, BLOCK_Q)
    program = tl.program_id(0)
    q_tile = program % tiles
    batch = (program // tiles // kv_heads).to(tl.int64)
    head = (program // tiles % kv_heads).to(tl.int64)
    split = tl.program_id(1).to(tl.int64)

    packed = q_tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row = packed // GROUP
    q_head = head * GROUP + packed % GROUP
    inside = row < queries
    far = row.to(tl.int64)  # rows times their stride may pass 2**31
    positions = position + row
    q += batch * q_strides[0]
    q_rows = q_head * q_strides[1] + far * q_strides[2]
    q_block = load_tile(q, q_rows, q_strides[3], inside, True, HEAD_DIM, BLOCK_D)
    k += batch * k_strides[0] + head * k_strides[1]
    v += batch * v_strides[0] + head * v_strides[1]
    padding += batch * padding_strides[0]

    first = position + q_tile * BLOCK_Q // GROUP
    last = position + tl.minimum((q_tile * BLOCK_Q + BLOCK_Q - 1) // GROUP, queries - 1)
    oldest, newest, begin, dense, edge, end = key_tiles(first, last, keys, window, CAUSAL, BLOCK_K)
    # This program's share of the tiles, all of them when there is one split.
    share = tl.cdiv(end - begin, tl.num_programs(1))
    begin = begin + tl.program_id(1) * share
    end = tl.minimum(begin + share, end)

    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    o = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for tile in tl.range(begin, tl.minimum(dense, end)):  # the window's far edge
        m, total, o = _attend_tile(
            tile, m, total, o, q_block, positions, oldest, newest, k, v, padding, k_strides, v_strides,
            padding_strides, scale, window, capacity, True, CAUSAL, RING, PADDED, HEAD_DIM, BLOCK_K, BLOCK_D,
        )  # fmt: skip
    for tile in tl.range(tl.maximum(begin, dense), tl.minimum(edge, end)):  # every key seen
        m, total, o = _attend_tile(
            tile, m, total, o, q_block, positions, oldest, newest, k, v, padding, k_strides, v_strides,
            padding_strides, scale, window, capacity, False, CAUSAL, RING, PADDED, HEAD_DIM, BLOCK_K, BLOCK_D,
        )  # fmt: skip
    for tile in tl.range(tl.maximum(begin, edge), end):  # the diagonal
        m, total, o = _attend_tile(
            tile, m, total, o, q_block, positions, oldest, newest, k, v, padding, k_strides, v_strides,
            padding_strides, scale, window, capacity, True, CAUSAL, RING, PADDED, HEAD_DIM, BLOCK_K, BLOCK_D,
        )  # fmt: skip

    divisor = tl.where(total == 0.0, 1.0, total)  # a row that sees nothing: 0 and -inf
    out += split * out_strides[0] + batch * out_strides[1]
    out_rows = q_head * out_strides[2] + far * out_strides[3]
    store_tile(out, out_rows, out_strides[4], o / divisor[:, None], inside, HEAD_DIM, BLOCK_D)
    lse += split * lse_strides[0] + batch * lse_strides[1]
    natural = (m + tl.log2(divisor)) * 0.6931471805599453  # ln(2): from powers of two to powers of e
    tl.store(lse + q_head * lse_strides[2] + far * lse_strides[3], natural, mask=inside)
