"""Real files that `make fuzz` damages: programs as text and as artifacts, chips, an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np

from compiler.artifact import to_bytes
from compiler.isa.assembler import assemble
from compiler.isa.lexer import without_comment
from compiler.isa.program import Buffer, Program
from compiler.target import Chip, load_chip
from compiler.target.chip_file import SHIPPED

ROOT = Path(__file__).parents[1]
HANDWRITTEN = ROOT / "tests" / "handwritten"
NPY_BUFFER = Buffer("x", "ddr", 0, 96, "fp32", (4, 6), "input")


@dataclass(frozen=True)
class Seed:
    """A program that is right, small enough to run ten thousand times, on one chip."""

    name: str
    path: Path
    chip_name: str
    defines: tuple[tuple[str, int], ...] = ()

    @property
    def chip(self) -> Chip:
        return load_chip(self.chip_name)

    @property
    def text(self) -> str:
        """The source, with the chip and the constants of this size in place of its own."""
        lines = [f".chip {self.chip_name}"]
        given = dict(self.defines)
        for line in self.path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] == [".equ"] and words[1] in given:
                line = f".equ {words[1]} {given.pop(words[1])}"
            if words[:1] != [".chip"]:
                lines.append(line)
        lines[1:1] = [f".equ {name} {value}" for name, value in given.items()]
        return "\n".join([*lines, ""])

    @property
    def code_text(self) -> str:
        """The source without comments, where damage would not show."""
        return "".join(f"{bare}\n" for line in self.text.splitlines() if (bare := without_comment(line).rstrip()))

    @property
    def program(self) -> Program:
        return assemble(self.text, file=self.path.name, chip=self.chip)

    @property
    def artifact(self) -> bytes:
        return to_bytes(self.program, self.chip, constants=self._constants(), options={"seed": self.name})

    def _constants(self) -> dict[str, np.ndarray]:
        """The first input of the first seed, so that some artifact holds weights."""
        first = next(b for b in self.program.buffers if b.role == "input")
        return {first.name: np.ones(first.shape, np.float32)} if self.name == "add" else {}


@lru_cache(maxsize=1)
def seeds() -> tuple[Seed, ...]:
    rows_of_256 = (("ROWS", 32), ("COLS", 256))
    small = {"CORES": 4, "TOTAL": 2000, "FORMER_CORES": 1, "TAIL_ELEMS": 496}
    return (
        Seed("add", ROOT / "docs" / "examples" / "add.twasm", "tiny", (("N", 1000),)),
        Seed("everything", ROOT / "ci" / "fuzz_seed.twasm", "tiny"),
        Seed("sinh", HANDWRITTEN / "sinh.twasm", "tw2", tuple(small.items())),
        Seed("softmax", HANDWRITTEN / "softmax.twasm", "tw1", rows_of_256),
        Seed("layer_norm", HANDWRITTEN / "layer_norm.twasm", "tw2", rows_of_256),
        Seed("conv3x3", HANDWRITTEN / "conv3x3_tw2.twasm", "tw2"),
    )


# Small programs come more often than large ones: they take milliseconds to run.
_OFTEN = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5)


@lru_cache(maxsize=64)
def content_of(name: str, suffix: str) -> bytes:
    seed = next(each for each in seeds() if each.name == name)
    if suffix == "twm":
        return seed.artifact
    return (seed.code_text if suffix == "code" else seed.text).encode()


@lru_cache(maxsize=1)
def chip_files() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(SHIPPED.glob("*.toml")))


@lru_cache(maxsize=1)
def array_file() -> bytes:
    stream = BytesIO()
    np.save(stream, np.arange(24, dtype=np.float32).reshape(NPY_BUFFER.shape), allow_pickle=False)
    return stream.getvalue()


def some_file(rng: Random, suffix: str) -> bytes:
    return content_of(seeds()[rng.choice(_OFTEN)].name, suffix)


def whole_files() -> Iterator[tuple[str, bytes]]:
    """(suffix, content) of every real file."""
    for seed in seeds():
        yield "twasm", content_of(seed.name, "twasm")
        yield "twm", content_of(seed.name, "twm")
    for content in chip_files():
        yield "toml", content
    yield "npy", array_file()
