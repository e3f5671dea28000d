"""Addresses in a memory of limited size for buffers that live at different times, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.codegen.packing import Lifetime, Span, gap


def _first_of(longest: int) -> Callable[[Lifetime], tuple[int, ...]]:
    """What lives for so many steps at most comes first, of that what takes the most bytes for the most steps: others
    find their place between it. Of the rest, what lives longest comes last.
    """

    def rank(life: Lifetime) -> tuple[int, ...]:
        steps = life.last - life.first + 1
        if steps <= longest:
            return (0, -life.size_bytes * steps, life.first)
        return (steps, -life.size_bytes, life.first)

    return rank


# Which of several buffers come first: what lives long may have to go, for the sake of what comes and goes.
ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda life: (-life.size_bytes, life.first),
    *(_first_of(longest) for longest in (1 << 30, 256, 64, 16, 4)),
    lambda life: (life.first, -life.size_bytes),
)


@dataclass
class SharedRoom:
    """What is taken of a memory at each step of a program; bytes rest ``later`` steps before somebody else's turn."""

    capacity: int
    alignment: int
    later: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    _taken: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def with_all(self, lives: Mapping[str, Lifetime], uses: Mapping[str, int] | None = None) -> SharedRoom:
        """The same with as many bytes more as there is room for in the best of several orders; those that are used for
        several buffers, one after another, count as often.
        """
        best, most = self, -1
        spans = {name: self._rounded(life.all_spans()) for name, life in lives.items()}
        for order in ORDERS:
            room = self._copy()
            ranked = sorted(lives, key=lambda name, rank=order: (*rank(lives[name]), name))  # type: ignore[misc]
            found = [name for name in ranked if room._placed(name, spans[name])]
            placed = sum(lives[name].size_bytes * (1 if uses is None else uses[name]) for name in found)
            if placed > most:
                best, most = room, placed
            if len(found) == len(lives):
                break
        return best

    def place(self, name: str, life: Lifetime) -> bool:
        """Whether there is room: then it is taken."""
        return self._placed(name, self._rounded(life.all_spans()))

    def _placed(self, name: str, spans: Sequence[Span]) -> bool:
        start = self._start(spans)
        if start + max(span.high for span in spans) > self.capacity:
            return False
        self._take(name, start, spans)
        return True

    def move_apart(self, name: str, life: Lifetime, steps: int) -> bool:
        """Whether what has a place has one now whose bytes nobody else takes for so many steps before and after."""
        spans, start = self._rounded(life.all_spans()), self.offsets[name]
        for span in spans:
            for step in self._steps(span):
                self._taken[step].remove((start + span.low, start + span.high))
        alone = [replace(span, first=max(0, span.first - steps), last=span.last + steps) for span in spans]
        found = self._start(alone)
        fits = found + max(span.high for span in spans) <= self.capacity
        self._take(name, found if fits else start, spans)
        return fits

    def _take(self, name: str, start: int, spans: Sequence[Span]) -> None:
        for span in spans:
            for step in self._steps(span):
                self._taken.setdefault(step, []).append((start + span.low, start + span.high))
        self.offsets[name] = start

    def _start(self, spans: Sequence[Span]) -> int:
        """Of the tightest gap for a buffer; of the first, where its spans are needed at different times."""
        if len(spans) == 1:
            return gap(spans[0].high, self._taken_in(spans[0]))
        start, taken, last = 0, [self._taken_in(span) for span in spans], -1
        while start != last:
            last = start
            for span, others in zip(spans, taken, strict=True):
                for low, high in others:
                    if low < start + span.high and start + span.low < high:
                        start = high - span.low
        return start

    def _taken_in(self, span: Span) -> list[tuple[int, int]]:
        found, taken = set[tuple[int, int]](), self._taken
        for step in self._steps(span):
            if step in taken:
                found.update(taken[step])
        return sorted(found)

    def _steps(self, span: Span) -> range:
        return range(span.first, span.last + self.later + 1)

    def _rounded(self, spans: Iterable[Span]) -> list[Span]:
        """To whole units."""
        unit = self.alignment
        return [Span(s.low // unit * unit, -(-s.high // unit) * unit, s.first, s.last) for s in spans]

    def missing(self, names: Iterable[str]) -> bool:
        return any(name not in self.offsets for name in names)

    def free_bytes(self, step: int) -> int:
        """Behind all that is taken at a step."""
        return self.capacity - max((end for _, end in self._taken.get(step, ())), default=0)

    def _copy(self) -> SharedRoom:
        taken = {step: list(spans) for step, spans in self._taken.items()}
        return SharedRoom(self.capacity, self.alignment, self.later, dict(self.offsets), taken)
