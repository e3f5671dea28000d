"""Elementwise sinh in fp16 on all cores: former and tail cores, tiles that are shifted back, exact ends.

The data is cut into blocks of 32 bytes, and the blocks into shares that differ by one block at most. The sizes are
chosen for the ways in which that can come out: shares of whole tiles, shares with a shifted last tile, one share that
is smaller or larger than the others, shares below a tile, cores without work, data that ends inside a block.

Tiles of 64 elements show the structure, not the speed: with one buffer each tile waits for all of its latencies, with
two for half of them. The ``bulk`` cases are the fast ones, bound by DDR: large tiles, more buffers, and vsinh in
place of the three instructions of ``bulk-steps``.
"""

from __future__ import annotations

import numpy as np

from compiler.target import load_chip
from tests.handwritten import Arrays, Case

MAX_CORES = 32
BLOCK_ELEMS = 16  # 32 bytes of fp16
TOTALS = {
    "96x512": 96 * 512,
    "32x80": 32 * 80,
    "31x64+48": 31 * 64 + 48,
    "1x96+31x80": 1 * 96 + 31 * 80,
    "32x64-3": 32 * 64 - 3,
    "1x48": 1 * 48,
    "8x64": 8 * 64,
}
SPECIALS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 6.1e-5, 1e-3, -1e-3, 8.0, -8.0], np.float16)
# Elements of a tile that come closest to the bandwidth of DDR; smaller ones pay more latency, larger ones end later.
BULK_TILE = {"tw1": 4096, "tw2": 5120}
# Two rounded terms and a rounded sum: twice 2^-11 of the value, or one step of the subnormal numbers.
RTOL, ATOL = 2 * 2.0**-11 + 1e-5, 2.0**-24


def tiling(total: int, cores: int) -> dict[str, int]:
    """What the host computes for a size: the tiling words, by the names of the program's definitions."""
    blocks = -(-total // BLOCK_ELEMS)
    return {
        "CORES": cores,
        "TOTAL": total,
        "FORMER_CORES": blocks % cores,
        "TAIL_ELEMS": blocks // cores * BLOCK_ELEMS,
    }


def _expected(inputs: Arrays) -> Arrays:
    with np.errstate(over="ignore"):
        return {"y": np.sinh(inputs["x"].astype(np.float64))}


def _case(name: str, chip_name: str, total: int, **options: int) -> Case:
    def make_inputs(rng: np.random.Generator) -> Arrays:
        """Half of the values are spread over [-8, 8], half over the magnitudes below; the special ones come first."""
        x = rng.uniform(-8, 8, total)
        x[1::2] *= 2.0 ** rng.integers(-24, 1, total // 2)
        x = x.astype(np.float16)
        x[: len(SPECIALS)] = SPECIALS
        return {"x": x}

    cores = min(MAX_CORES, load_chip(chip_name).cores)
    return Case(
        name=f"sinh-{chip_name}-{name}",
        source="sinh.twasm",
        chip_name=chip_name,
        make_inputs=make_inputs,
        expected=_expected,
        rtol=RTOL,
        atol=ATOL,
        defines=tiling(total, cores) | options,
    )


CASES = [
    *(
        _case(f"{size}-{'double' if double else 'single'}", chip_name, total, DOUBLE=double)
        for chip_name in ("tw1", "tw2")
        for size, total in TOTALS.items()
        for double in (1, 0)
    ),
    *(
        _case(f"{size}-{name}", chip_name, total, **options)
        for chip_name in ("tw1", "tw2")
        for size, total, name, options in (
            ("96x2048", 96 * 2048, "bulk-steps", {"TILE": 2048, "BUFFERS": 3}),
            ("96x2048", 96 * 2048, "bulk", {"TILE": 2048, "BUFFERS": 4, "NATIVE": 1}),
            ("2048x2048", 2048 * 2048, "bulk", {"TILE": BULK_TILE[chip_name], "BUFFERS": 4, "NATIVE": 1}),
        )
    ),
]
