"""What `make fuzz` feeds in: real files, and what is left of them after damage. The same number gives the same input.

A *kind* of damage has a file suffix, which says how the input is read, and a function from a random generator to
bytes. Damage to an artifact is covered up by new checksums where the kind's name says ``sealed``: otherwise the
checksums would be all that is ever tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from ci.fuzz_damage import (
    chip_values,
    code_bits,
    code_values,
    debug,
    flipped,
    frame,
    manifest,
    really_flipped,
    registers,
    words,
)
from ci.fuzz_files import array_file, chip_files, some_file, whole_files

TRUNCATIONS = 64


@dataclass(frozen=True)
class Kind:
    """A way to make inputs: how they are read, and how many of the mutations are of this kind, in percent."""

    name: str
    suffix: str
    share: int
    make: Callable[[Random], bytes]
    never_accepted: bool = False  # a checksum stands before it


KINDS: tuple[Kind, ...] = (
    Kind("twm bits", "twm", 6, lambda rng: really_flipped(rng, some_file(rng, "twm")), never_accepted=True),
    Kind("twm header, sealed", "twm", 6, frame),
    Kind("twm code bits, sealed", "twm", 13, code_bits),
    Kind("twm code values, sealed", "twm", 14, code_values),
    Kind("twm manifest, sealed", "twm", 11, manifest),
    Kind("twm debug map, sealed", "twm", 4, debug),
    Kind("twm values from registers", "twm", 10, registers),
    Kind("twasm bits", "twasm", 9, lambda rng: flipped(rng, some_file(rng, "code"))),
    Kind("twasm words", "twasm", 14, words),
    Kind("chip bits", "toml", 4, lambda rng: flipped(rng, rng.choice(chip_files()))),
    Kind("chip values", "toml", 6, chip_values),
    Kind("npy bits", "npy", 3, lambda rng: flipped(rng, array_file())),
)


@dataclass(frozen=True)
class Input:
    """One input: where it comes from, and how it is read."""

    kind: str
    number: int
    suffix: str
    content: bytes
    never_accepted: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.number}"


def mutation(kind: Kind, number: int, seed: int) -> Input:
    rng = Random(f"{seed} {kind.name} {number}")  # text is hashed the same way in every process
    return Input(kind.name, number, kind.suffix, kind.make(rng), kind.never_accepted)


def truncations() -> Iterator[Input]:
    """Every real file, cut off at every 1/64 of its length."""
    counts: dict[str, int] = {}
    for suffix, content in whole_files():
        for part in range(TRUNCATIONS):
            number = counts[suffix] = counts.get(suffix, -1) + 1
            cut = content[: len(content) * part // TRUNCATIONS]
            yield Input(f"{suffix} cut off", number, suffix, cut, never_accepted=suffix == "twm")


def mislabelled() -> Iterator[Input]:
    """Every real file under every other suffix, and files of other programs."""
    foreign = [("elf", b"\x7fELF" + bytes(60)), ("zip", b"PK\3\4" + bytes(60)), ("none", b""), ("zeros", bytes(4096)),
               ("pickle", b"\x80\x04\x95\x05\0\0\0\0\0\0\0\x8c\x01a\x94."), ("json", b'{"a": 1}'),
               ("bom", b"\xef\xbb\xbf"), ("utf16", "halt\n".encode("utf-16")), ("nan", b"[1e999, NaN]")]  # fmt: skip
    number = 0
    for suffix, content in [*whole_files(), *foreign]:
        for other in ("twm", "twasm", "toml", "npy"):
            if other != suffix:
                yield Input("mislabelled", number, other, content)
                number += 1
