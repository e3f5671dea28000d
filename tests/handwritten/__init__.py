"""Programs written by hand, as good as an expert makes them: tests now, baselines for compiled code later.

Each module beside this one describes one family: an assembly file and the :class:`Case` objects that give it chips,
sizes, inputs and an independent oracle. ``cases()`` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np

from compiler.isa.assembler import assemble_file
from compiler.isa.program import Program
from compiler.target import Chip, load_chip

FOLDER = Path(__file__).parent
SEED = 20261120

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One program on one chip at one size."""

    name: str  # family-chip-size
    source: str  # file in this folder
    chip_name: str
    make_inputs: Callable[[np.random.Generator], Arrays]
    expected: Callable[[Arrays], Arrays]  # in float64, from the inputs
    rtol: float
    atol: float
    defines: Mapping[str, int] = field(default_factory=dict)
    macs: int = 0  # useful multiply-accumulates, for efficiency
    baseline: bool = True  # false: too large to execute; timed only

    @property
    def chip(self) -> Chip:
        return load_chip(self.chip_name)

    @property
    def program(self) -> Program:
        return _assembled(self.source, self.chip_name, tuple(sorted(self.defines.items())))

    def inputs(self) -> Arrays:
        return self.make_inputs(np.random.default_rng(SEED))

    def check(self, inputs: Arrays, outputs: Arrays) -> None:
        """Compare with the oracle; NaN and infinities must match exactly."""
        for name, want in self.expected(inputs).items():
            got = outputs[name].astype(np.float64)
            np.testing.assert_allclose(got, want, rtol=self.rtol, atol=self.atol, err_msg=f"{self.name}: {name}")


@lru_cache(maxsize=256)
def _assembled(source: str, chip_name: str, defines: tuple[tuple[str, int], ...]) -> Program:
    return assemble_file(FOLDER / source, chip=load_chip(chip_name), defines=dict(defines))


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    families = sorted(p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith(("_", "test_")))
    found = [case for family in families for case in import_module(f"{__name__}.{family}").CASES]
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError(f"cases with the same name: {sorted(n for n in set(names) if names.count(n) > 1)}")
    return tuple(found)
