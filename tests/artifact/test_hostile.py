"""Damaged and forged artifacts: whatever the bytes, reading ends in an artifact or in an error with the right code.

Damage leaves the checksums wrong; a forger makes them right again, so that what is behind them is reached too. A
forgery that is accepted must be a program that both engines can run to an end, or refuse.
"""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
import pytest

from compiler.artifact import Stored, canonical, container, read_program, to_bytes
from compiler.artifact.container import DEBUG, MANIFEST, PROGRAMS, WEIGHTS
from compiler.artifact.reader import read_frame
from compiler.errors import TilewrightError
from compiler.isa.dtypes import DTYPES
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import simulate
from compiler.sim.statistics import statistics, table
from compiler.target import Chip
from tests.sim import sample

READ_CODES = {3, 7, 8}
RUN_CODES = {2, 4, 5, 6, 9, 10}
STEPS = 3000


@pytest.fixture(scope="module")
def whole() -> bytes:
    return to_bytes(sample.program(), sample.chip(), constants={"m": sample.inputs()["m"]}, options={"level": 1})


def code_of(data: bytes) -> int:
    """The exit code with which reading ends; anything but a TilewrightError fails the test."""
    try:
        read_program(data)
    except TilewrightError as error:
        assert all(problem.message and problem.code for problem in error.problems)
        return error.exit_code
    return 0


def test_every_truncation_is_noticed(whole: bytes) -> None:
    cuts = {len(whole) * part // 64 for part in range(64)} | {len(whole) - 1, 511, 512, 513, 7, 8, 9}
    for cut in cuts:
        assert code_of(whole[:cut]) == 8


def test_every_extension_is_noticed(whole: bytes) -> None:
    for extra in (b"\0", bytes(64), whole):
        assert code_of(whole + extra) == 8


def test_every_flip_of_a_bit_is_noticed(whole: bytes) -> None:
    """All of the header, and a sample of everywhere else: weights, padding and debug information included."""
    generator = random.Random(1)
    header = range(container.HEADER_BYTES * 8)
    rest = generator.sample(range(container.HEADER_BYTES * 8, len(whole) * 8), 3000)
    last = [s for s in read_program(whole).sections if s.kind == DEBUG]
    debug = range(last[0].offset * 8, last[0].end * 8)
    for bit in [*header, *rest, *debug]:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert code_of(bytes(damaged)) in READ_CODES, f"bit {bit % 8} of byte {bit // 8}"


def test_random_damage_is_noticed(whole: bytes) -> None:
    generator = random.Random(2)
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(generator.choice([2, 8, 64])):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        start, length = generator.randrange(len(whole)), generator.randrange(200)
        if generator.random() < 0.3:
            del damaged[start : start + length]
        elif generator.random() < 0.3:
            damaged[start:start] = generator.randbytes(length)
        assert code_of(bytes(damaged)) in READ_CODES or bytes(damaged) == whole


# ---- forgeries --------------------------------------------------------------------------------------------------


class Forger:
    """Changes sections and makes all checksums right again."""

    def __init__(self, whole: bytes, seed: int) -> None:
        self.sections = {kind: bytes(content) for kind, content in read_frame(whole).contents.items()}
        self.generator = random.Random(seed)

    def forge(self) -> bytes:
        sections = dict(self.sections)
        kind = self.generator.choice([MANIFEST, MANIFEST, WEIGHTS, PROGRAMS, PROGRAMS, DEBUG])
        if kind in (MANIFEST, DEBUG) and self.generator.random() < 0.95:
            tables = canonical.loads(sections[kind])
            for _ in range(self.generator.choice([1, 1, 1, 2])):
                self._change(tables)
            if kind == MANIFEST and self.generator.random() < 0.9:
                self._rehash(tables)
            sections[kind] = canonical.dumps(tables)
        else:
            content = bytearray(sections[kind])
            for _ in range(self.generator.choice([1, 1, 1, 2, 5])):
                content[self.generator.randrange(len(content))] ^= 1 << self.generator.randrange(8)
            sections[kind] = bytes(content)
        return container.pack(sections)

    def _rehash(self, tables: Any) -> None:
        """Where the chip was changed into another valid one, its hash is made right as well."""
        try:
            chip = Chip.from_dict(tables["chip"]["tables"])
            tables["chip"].update(name=chip.name, content_hash=chip.content_hash)
            if self.generator.random() < 0.9:
                tables["segments"][0]["chip"] = chip.name
        except (LookupError, TypeError, ValueError, AttributeError):
            return

    def _change(self, tables: Any) -> None:
        places = list(self._places(tables))
        if not places:
            return
        owner, key = self.generator.choice(places)
        action = self.generator.random()
        if action < 0.9:
            owner[key] = self._value(owner[key])
        elif action < 0.95:
            del owner[key]
        elif isinstance(owner, list):
            owner.append(owner[key])
        else:
            owner["more"] = owner[key]

    def _places(self, value: Any) -> Any:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in items:
            yield value, key
            yield from self._places(each)

    def _value(self, old: Any) -> Any:
        if type(old) is int and self.generator.random() < 0.8:
            bit = 1 << self.generator.randrange(20)
            return self.generator.choice([old + 1, old - 1, old * 2, old // 2, 0, -1, 2**31, 2**63 - 1, old ^ bit])
        return self.generator.choice(
            [None, True, 0, -1, 2**62, "x", "ddr", "llb", "\u00e9\n", [], {}, [1, 2], {"a": 1}]
        )


def runnable(artifact: Stored) -> bool:
    """Small enough to be run thousands of times."""
    arrays = [b for b in artifact.program.buffers if b.role != "scratch"]
    return sum(b.size_bytes for b in arrays) < 1 << 22 and artifact.chip.cores <= 64


def run_or_refuse(artifact: Stored) -> None:
    program, chip = artifact.program, artifact.chip
    inputs = {
        b.name: np.ones(b.shape, DTYPES[b.dtype].numpy) for b in program.buffers if b.role in ("input", "inout")
    } | dict(artifact.constants)
    for engine in (_simulate, _interpret):
        try:
            engine(program, chip, inputs)
        except TilewrightError as error:
            assert error.exit_code in RUN_CODES


def _simulate(program: Any, chip: Chip, inputs: dict[str, np.ndarray]) -> None:
    assert table(statistics(simulate(program, chip, inputs, hazards=True, max_steps=STEPS)))


def _interpret(program: Any, chip: Chip, inputs: dict[str, np.ndarray]) -> None:
    interpret(program, chip, inputs, max_steps=STEPS)


def forge_and_read(whole: bytes, seed: int, count: int) -> None:
    forger, accepted = Forger(whole, seed), 0
    for _ in range(count):
        data = forger.forge()
        try:
            artifact = read_program(data)
        except TilewrightError as error:
            assert error.exit_code in READ_CODES
            continue
        accepted += 1
        assert all(b.size_bytes >= prod(b.shape) for b in artifact.program.buffers)
        if runnable(artifact):
            run_or_refuse(artifact)
    assert accepted > count // 50  # or the forgeries do not get far enough to test anything


@pytest.mark.parametrize("seed", range(4))
def test_forgeries_are_refused_or_run(whole: bytes, seed: int) -> None:
    forge_and_read(whole, seed, 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 102))  # `make fuzz` forges whole models and chips, too
def test_many_forgeries_are_refused_or_run(whole: bytes, seed: int) -> None:
    forge_and_read(whole, seed, 1500)
