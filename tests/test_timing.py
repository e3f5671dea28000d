"""What kernels and programs take alone is what they take when they are run."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import driver, timing
from compiler.codegen.kernel import KernelCode
from compiler.compilation import Compilation
from compiler.options import Options
from compiler.runtime.model import ProgramSegment
from compiler.sim.expand import Expander
from compiler.sim.simulator import prepare
from compiler.target import Chip, load_chip
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("first_tiles")
RNG = np.random.default_rng(0)


def product(chip: Chip) -> tuple[Compilation, KernelCode, Chip]:
    """A program of one kernel, that, and the chip that it was compiled for."""
    weights = RNG.standard_normal((512, 640)).astype(np.float32)
    source = model([node("MatMul", "x w", "y")], {"x": (512, 512)}, ["y"], w=weights)
    found = driver.compile_model(source, chip, Options(precision="fp16"))
    (step,) = found.steps
    assert step.kernel is not None
    return found, step.kernel.code, chip.one_cluster(found.clusters) if found.clusters else chip


@pytest.mark.parametrize("name", ["tiny", "tw1", "tw2"])
def test_a_kernel_alone_takes_as_long_as_a_program_of_it(name: str) -> None:
    """On tw1 several clusters work on their parts, and load what they have in common at once."""
    found, code, chip = product(load_chip(name))
    assert (found.clusters > 1) == (name == "tw1")
    (segment,) = found.model.segments
    assert isinstance(segment, ProgramSegment)
    cycles = prepare(segment.program, load_chip(name)).cycles
    alone = timing.kernel_cycles(code, chip)
    assert alone is not None
    assert abs(alone / cycles - 1) < 0.01
    assert found.simulated_cycles == cycles


def test_what_takes_long_to_know_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    _, code, chip = product(load_chip("tw2"))
    known = timing.kernel_cycles(code, chip)
    monkeypatch.setattr(timing, "MOST_STEPS", 50)
    assert timing.kernel_cycles(code, chip) is None
    assert timing.kernel_cycles(code, chip, 1_000_000) == known


def test_the_first_core_tells_that_a_program_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, _ = product(load_chip("tw2"))
    (segment,) = found.model.segments
    assert isinstance(segment, ProgramSegment)
    steps = prepare(segment.program, load_chip("tw2")).stream.steps
    ran = list[int]()
    run = Expander.run
    monkeypatch.setattr(Expander, "run", lambda self, core: ran.append(core.core) or run(self, core))  # type: ignore[func-returns-value]
    assert timing.cycles_of(segment.program, load_chip("tw2"), steps // 2) is None
    assert ran == [0]
    assert timing.cycles_of(segment.program, load_chip("tw2"), steps) == found.simulated_cycles
