"""Which pass made another program first: a hash of what every step of the compiler made of a model.

Passes run for every kernel, and for several tiles of it. A step's hash is over all kernels, of the first tile that each
was tried with: at the first step that differs every kernel still was what it had been at the steps before. What comes
later depends on what was chosen between tiles, and stands behind the choice:

    import, the graph's passes, tiling      what there is to lower
    lower-blocks, ..., dispatch-ahead       the first tile of each kernel; a pass that ran twice has a number
    choice                                  which tiles were taken, after the cost model compared them
    then lower-blocks, ...                  the other tiles, and what finishes the chosen ones
    program                                 the code after link

A step that left everything as it was is left out, so that a pass that does nothing here can come and go.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tvm_ffi
from tvm.ir import IRModule

from compiler.clusters import without_thought
from compiler.isa.encoding import encode
from compiler.pipeline import kernel_passes
from compiler.runtime.model import CompiledModel, ProgramSegment

GRAPH = "graph"  # what the passes work on before there are kernels
LATER = "then "
DIGITS = 6
LAYERS = {
    "import": "the importer or an operator made another graph",
    "tiling": "grouping the same, but stages were fused or tiles ranked in another way",
    "choice": "the same tiles were lowered to the same code, but others of them were chosen by the cost model",
    "program": "all kernels the same before code was generated and linked",
}


class Step(NamedTuple):
    name: str
    digest: str


@dataclass
class Trail:
    """Watches all passes of one compilation (`compiler.pipeline.Observer`)."""

    events: list[tuple[str, str, str]] = field(default_factory=list)  # kernel, step, hash; in order
    latest: tuple[str, str] = ("", "")  # the kernel and step that was seen last, whether it changed something or not
    _last: Any = None
    _kernel: str = ""
    _seen: set[str] = field(default_factory=set)
    _counts: Counter[str] = field(default_factory=Counter)
    _later: bool = False
    _before: str = ""

    def __call__(self, kernel: str, name: str, before: Any, after: Any) -> None:
        if kernel == GRAPH:
            if not self.events:
                self.events.append((GRAPH, "import", hashed(before)))
            self._add(GRAPH, name, hashed(before), hashed(after))
            return
        if before is not self._last:  # passes hand on what they made: this is another kernel, or another tile of it
            self._begin(kernel, before)
        self._counts[name] += 1
        digest = self._before if after is before else hashed(after)
        self._add(
            self._kernel, f"{LATER if self._later else ''}{numbered(name, self._counts[name])}", self._before, digest
        )
        self._last, self._before = after, digest

    def _begin(self, kernel: str, subject: Any) -> None:
        self._kernel, self._counts = kernel.partition(".attempt")[0], Counter()
        self._later = self._kernel in self._seen
        self._seen.add(self._kernel)
        self._before = hashed(subject)
        if not self._later:
            self.events.append((self._kernel, "tiling", self._before))

    def _add(self, kernel: str, step: str, before: str, after: str) -> None:
        self.latest = (kernel, step)
        if before != after:
            self.events.append((kernel, step, after))

    def steps(self, model: CompiledModel, tiles: Sequence[str]) -> list[Step]:
        """The hashes of the whole compilation, in the order in which steps depend on each other."""
        first = dict.fromkeys(name for _, name, _ in self.events if not name.startswith(LATER))
        later = dict.fromkeys(name for _, name, _ in self.events if name.startswith(LATER))
        found = [*map(self._step, _in_order(first)), Step("choice", joined(tiles))]
        return [*found, *map(self._step, _in_order(later)), Step("program", program_hash(model))]

    def _step(self, name: str) -> Step:
        return Step(name, joined(f"{kernel} {digest}" for kernel, step, digest in self.events if step == name))


def _in_order(names: Iterable[str]) -> list[str]:
    """As the pipeline has its passes; what it has not stays in front."""
    count, order = Counter[str](), {}
    for one in kernel_passes():
        count[one.name] += 1
        order[numbered(one.name, count[one.name])] = len(order)
    return sorted(names, key=lambda name: order.get(name.removeprefix(LATER), -1))


def numbered(name: str, count: int) -> str:
    """A pass that stands more than once in the pipeline."""
    return f"{name} {count}" if count > 1 else name


def hashed(subject: Any) -> str:
    if isinstance(subject, IRModule):
        subject = without_thought(subject)
    return f"{tvm_ffi.structural_hash(subject, map_free_vars=True) & (1 << 64) - 1:016x}"


def joined(parts: Any) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]


def program_hash(model: CompiledModel) -> str:
    digest = hashlib.sha256()
    for segment in model.segments:
        if isinstance(segment, ProgramSegment):
            digest.update(bytes(encode(segment.program.instrs)))
            digest.update(repr([(b.name, b.memory, b.end) for b in segment.program.buffers]).encode())
        else:
            digest.update(segment.function.encode())
    return digest.hexdigest()[:DIGITS]


# ---- as it is recorded --------------------------------------------------------------------------------------------


def as_text(steps: Sequence[Step]) -> str:
    """One line: ``import=1a2b3c group-operators=...``; a space within a name is a tilde."""
    return " ".join(f"{step.name.replace(' ', '~')}={step.digest}" for step in steps)


def from_text(text: str) -> list[Step]:
    parts = (part.rpartition("=") for part in text.split())
    return [Step(name.replace("~", " "), digest) for name, _, digest in parts]


def first_difference(before: Sequence[Step], now: Sequence[Step]) -> str:
    """The first step that is another one; empty where there is none."""
    for index, (old, new) in enumerate(zip(before, now, strict=False)):
        if old == new:
            continue
        if old.name == new.name:
            return new.name
        # One of the two does something here that the other compiler does not do, or does later.
        return old.name if new.name in _names(before[index:]) else new.name
    longer = before if len(before) > len(now) else now
    return longer[min(len(before), len(now))].name if len(before) != len(now) else ""


def explained(step: str) -> str:
    """A step for a person."""
    if not step:
        return "the program is the same: the simulator, the chip or the runtime changed"
    if step in LAYERS:
        return f"{step}: {LAYERS[step]}"
    name = step.removeprefix(LATER)
    where = "on a tile other than the first, or when finishing the chosen one" if step.startswith(LATER) else ""
    return f"pass {name}" + (f" ({where})" if where else "")


def _names(steps: Sequence[Step]) -> Iterator[str]:
    return (step.name for step in steps)
