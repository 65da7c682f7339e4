"""Make rows.npz: packed rows with the skewed lengths of documents. Run it to make the same file again.

Usage: python data/packed_rows/make.py
"""

from pathlib import Path

import numpy as np

from attnlab.datasets import write_digests
from attnlab.segments.packing import pack

HERE = Path(__file__).parent


def documents(tokens: int, rows: int, seed: int) -> np.ndarray:
    """Draw log-normal document lengths (median 380 tokens, mean about 780) until they fill the rows."""
    lengths = np.random.default_rng(seed).lognormal(np.log(380), 1.2, size=rows * tokens // 300)
    lengths = np.clip(lengths.astype(np.int64), 8, tokens)
    return lengths[: np.searchsorted(np.cumsum(lengths), rows * tokens)]


def main() -> None:
    """Write the file and say what is in it."""
    arrays = {}
    for tokens, rows, seed in ((4096, 16, 1), (32768, 4, 2), (131072, 2, 3)):
        packed = pack(documents(tokens, rows, seed), tokens)
        # Sorting by length is the packer's affair; a loader shuffles, so a row holds its documents in any
        # order.
        rng = np.random.default_rng(seed)
        ids = np.zeros_like(packed.segment_ids)
        lengths = np.zeros_like(packed.lengths)
        for row, sizes in enumerate(packed.lengths):
            order = rng.permutation(sizes[sizes > 0])
            lengths[row, : order.size] = order
            ids[row, : order.sum()] = np.repeat(np.arange(1, order.size + 1), order)
        arrays[f"segment_ids_{tokens}"] = ids
        arrays[f"lengths_{tokens}"] = lengths
        full = (ids != 0).mean()
        print(f"T = {tokens}: {len(ids)} rows, up to {lengths.shape[1]} segments, {full:.1%} of tokens real")
    np.savez_compressed(HERE / "rows.npz", **arrays)
    write_digests(HERE.parent)


if __name__ == "__main__":
    main()
