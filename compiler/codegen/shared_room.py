"""Addresses in a memory of limited size for buffers that live at different times, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from compiler.codegen.packing import Lifetime, gap


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
        for order in ORDERS:
            room = self._copy()
            ranked = sorted(lives, key=lambda name, rank=order: (*rank(lives[name]), name))  # type: ignore[misc]
            found = [name for name in ranked if room.place(name, lives[name])]
            placed = sum(lives[name].size_bytes * (1 if uses is None else uses[name]) for name in found)
            if placed > most:
                best, most = room, placed
            if len(found) == len(lives):
                break
        return best

    def place(self, name: str, life: Lifetime) -> bool:
        """Whether there is room: then it is taken."""
        steps = range(life.first, life.last + self.later + 1)
        size = -(-life.size_bytes // self.alignment) * self.alignment
        start = gap(size, sorted({span for step in steps for span in self._taken.get(step, ())}))
        if start + size > self.capacity:
            return False
        for step in steps:
            self._taken.setdefault(step, []).append((start, start + size))
        self.offsets[name] = start
        return True

    def missing(self, names: Iterable[str]) -> bool:
        return any(name not in self.offsets for name in names)

    def free_bytes(self, step: int) -> int:
        """Behind all that is taken at a step."""
        return self.capacity - max((end for _, end in self._taken.get(step, ())), default=0)

    def _copy(self) -> SharedRoom:
        taken = {step: list(spans) for step, spans in self._taken.items()}
        return SharedRoom(self.capacity, self.alignment, self.later, dict(self.offsets), taken)
