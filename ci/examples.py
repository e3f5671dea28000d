"""The operators in `examples/` on every chip: cycles beside what the work needs at least, as examples/README.md shows.

The bounds are those of `compiler.report.bounds`: what must come from DDR and go there, each once, one pass of the
vector unit over what only it can compute, and products at the matrix unit's peak.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from ci.performance.measure import Measured, measure
from compiler.operators import find_called, load_operators
from compiler.report.bounds import Bound, Work
from compiler.single_operator import model_of
from compiler.target import load_chip

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CHIPS = ("tiny", "tw1", "tw2")
ENOUGH = 0.85
HALF = 2  # bytes of an element


@dataclass(frozen=True)
class Example:
    """One operator at one size, and the work in it; all elements are halves."""

    file: str
    operator: str
    inputs: Mapping[str, tuple[int, ...]]
    work: Work
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    example: Example
    chip: str
    bound: Bound
    measured: Measured

    @property
    def share(self) -> float:
        return self.bound.cycles / self.measured.cycles


def examples(chip: str) -> list[Example]:
    """At sizes at which the work is more than starting it."""
    rows, channels = {"tiny": (256, 256), "tw1": (4096, 2048), "tw2": (8192, 4096)}[chip]
    plane = {"tiny": (1024, 64), "tw1": (16384, 256), "tw2": (16384, 256)}[chip]
    blocks, block, depth, step, width = {
        "tiny": (4, 32, 256, 256, 512),
        "tw1": (4, 1024, 1024, 1024, 4096),
        "tw2": (8, 512, 2048, 1536, 8192),
    }[chip]
    size, groups = rows * channels, 4
    reach = step * (blocks - 1) + depth
    return [
        Example("mish.py", "Mish", {"x": (rows, channels)}, _moved(2 * size, passes=size)),
        Example(
            "bias_gelu_residual.py",
            "BiasGeluResidual",
            {"x": (rows, channels), "bias": (channels,), "residual": (rows, channels)},
            _moved(3 * size + channels, passes=size),
            {"approximate": "tanh"},
        ),
        Example("stencil.py", "HeatStep", {"x": plane}, _moved(2 * prod(plane), passes=prod(plane)), {"rate": 0.1}),
        Example(
            "grouped_rms_norm.py",
            "GroupedRmsNorm",
            {"x": (rows, groups, channels // groups), "gain": (groups, channels // groups)},
            _moved(2 * size + channels + 2 * rows * groups, passes=size),
        ),
        Example(
            "block_sparse_matmul.py",
            "BandMatMul",
            {"w": (blocks, block, depth), "x": (reach, width)},
            Work(
                {"fp16": blocks * block * depth * width},
                0,
                HALF * (blocks * block * depth + reach * width + blocks * block * width),
            ),
            {"step": step},
        ),
    ]


def _moved(elements: int, *, passes: int) -> Work:
    return Work({}, HALF * passes, HALF * elements)


def measured(chip: str) -> Iterator[Row]:
    for one in examples(chip):
        load_operators(EXAMPLES / one.file)
        declared = find_called(f"com.example::{one.operator}")
        types = {name: f"float16[{', '.join(map(str, shape))}]" for name, shape in one.inputs.items()}
        model = model_of(declared, types, one.attributes)
        yield Row(one, chip, one.work.bound(load_chip(chip)), measure(model, chip, precision="fp16"))


def table(rows: list[Row]) -> Iterator[str]:
    yield "| example | chip | inputs (fp16) | cycles | at least | by | share | traffic | below 85 %: why |"
    yield "|---|---|---|---:|---:|---|---:|---:|---|"
    for row in rows:
        inputs = ", ".join("x".join(map(str, shape)) for shape in row.example.inputs.values())
        why = "" if row.share >= ENOUGH else row.measured.reason
        traffic = row.measured.ddr_bytes / row.example.work.ddr_bytes
        cells = (row.example.file, row.chip, inputs, f"{row.measured.cycles:,}", f"{row.bound.cycles:,}", row.bound.by)
        yield f"| {' | '.join(cells)} | {row.share:.0%} | {traffic:.2f} | {why} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chip", choices=CHIPS, action="append", help="only this chip")
    options = parser.parse_args()
    rows = [row for chip in options.chip or CHIPS for row in measured(chip)]
    sys.stdout.writelines(f"{line}\n" for line in table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
