"""One program of a model, made ready once and run on as many inputs as there are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from compiler.errors import HazardError, Problem, TilewrightError
from compiler.isa.program import Program
from compiler.sim.expand import UnknownLoad
from compiler.sim.hazards import HazardReport
from compiler.sim.simulator import Run, prepare, simulate
from compiler.target import Chip

MAX_GUESSES = 4


class ReadyProgram:
    """Timed before it is run first, recorded when it is, checked for hazards when somebody asks for that.

    What a program does whose scalar loads read data depends on that. It is run on the guess that they read what they
    read last; if they do, that is what the program does, since each load is right if those before it are. If not, what
    they read is the next guess.
    """

    def __init__(self, program: Program, chip: Chip) -> None:
        self.program, self.chip = program, chip
        self._run: Run | None = None

    @cached_property
    def depends_on_data(self) -> bool:
        """Whether its times are known only with inputs; else they are known from here on."""
        try:
            self._timed()
        except UnknownLoad:
            return True
        return False

    @property
    def ran(self) -> Run | None:
        """The last run, or the preparation for the first."""
        return self._run

    def set_up(self) -> None:
        """All that can be done before there are inputs."""
        if not self.depends_on_data and self._run is not None:
            self._run.record()

    def run(self, inputs: Mapping[str, np.ndarray], hazards: bool, workers: int | None) -> dict[str, np.ndarray]:
        """The output buffers' contents; with ``hazards`` any hazard raises."""
        if self.depends_on_data:
            run = None if hazards else self._guessed(inputs, workers)
            self._run = run or simulate(self.program, self.chip, inputs, hazards=hazards, workers=workers)
            _raise(self._run.hazards if hazards else [])
            return self._run.outputs
        run = self._checked() if hazards else self._timed()
        _raise(run.hazards if hazards else [])
        run.execute(inputs, workers=workers)
        return run.outputs

    def _guessed(self, inputs: Mapping[str, np.ndarray], workers: int | None) -> Run | None:
        """The run on these inputs, found without the interpreter; None where guesses do not lead to it."""
        run = self._run
        for _ in range(MAX_GUESSES):
            if run is None:
                return None
            read = run.execute(inputs, workers=workers)
            if read == run.loaded:
                return run
            try:
                run = prepare(self.program, self.chip, loaded=read)
            except TilewrightError:  # what a wrong guess does may be illegal
                return None
        return None

    def _timed(self) -> Run:
        if self._run is None:
            self._run = prepare(self.program, self.chip)
        return self._run

    def _checked(self) -> Run:
        run = self._timed()
        if not run.checked:
            report = HazardReport(run.stream, run.classes, run.schedule, run.program, run.chip)
            run.hazards, run.checked = report.races() + report.leaks(), True
        return run


def _raise(hazards: list[Problem]) -> None:
    if hazards:
        raise HazardError(hazards)
