"""Addresses at which few operands collide in the banks: buffers swapped and shifted, one at a time, by cost."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.codegen.lifetimes import alignment
from compiler.target import Chip

Addresses = tuple[int, ...]
Cost = Callable[[Addresses, float], float]  # once it is known not to be below a limit it may be any such number
Share = Callable[[Addresses], Sequence[float]]
Spent = Callable[[], bool]
_ANY = float("inf")


@dataclass(frozen=True)
class Room:
    """Buffers that are to be placed: their sizes, which of them must stay apart, and where they may end."""

    sizes: tuple[int, ...]
    apart: tuple[frozenset[int], ...]
    limit: int


@dataclass(frozen=True)
class _Layout:
    """Buffers in the order in which they are placed, each in the lowest place for it from a bank on, in a group."""

    order: tuple[int, ...]
    banks: tuple[int, ...]
    groups: tuple[int, ...]


def shifted(
    room: Room, start: Addresses, cost: Cost, share: Share, enough: float, spent: Spent, chip: Chip
) -> Addresses:
    """Addresses that cost the least that was found, at most what ``start`` costs.

    The search ends at ``enough``, or once its effort is ``spent``. ``share`` says for every buffer what the
    instructions cost that work on it: those are moved first.
    """
    return _Search(room, cost, share, enough, spent, chip).run(start)


class _Search:
    def __init__(self, room: Room, cost: Cost, share: Share, enough: float, spent: Spent, chip: Chip) -> None:
        self.room, self.share, self.enough, self.spent = room, share, enough, spent
        banks = chip.vector.banks
        self.group_bytes = alignment("ub", chip)  # whole groups, or what an address is a multiple of, if that is more
        self.groups = max(1, (banks.groups << banks.group_shift) // self.group_bytes)
        self.bank_bytes, self.banks = 1 << banks.bank_shift, banks.banks
        self._cost = cost

    def run(self, start: Addresses) -> Addresses:
        best, least = start, self._cost(start, _ANY)
        layout = self._read(start)
        placed = self._placed(layout)
        now = self._cost(placed, least) if placed is not None else _ANY
        if placed is not None and now < least:
            best, least = placed, now
        improved = True
        while improved and least > self.enough and not self.spent():
            improved = False
            for buffer in self._by_share(best):
                better = self._moved(layout, buffer, least) or self._swapped(layout, buffer, least)
                if better is not None:
                    layout, best, least = better
                    improved = True
                if least <= self.enough or self.spent():
                    break
        return best

    def _read(self, addresses: Addresses) -> _Layout:
        order = tuple(sorted(range(len(addresses)), key=lambda each: (addresses[each], each)))
        groups = tuple(address // self.group_bytes % self.groups for address in addresses)
        return _Layout(order, (0,) * len(addresses), groups)

    def _by_share(self, addresses: Addresses) -> list[int]:
        shares = self.share(addresses)
        return sorted((b for b, share in enumerate(shares) if share > 0), key=lambda b: -shares[b])

    def _moved(self, layout: _Layout, buffer: int, least: float) -> tuple[_Layout, Addresses, float] | None:
        """The best group for one buffer, then the best bank, or where neither helps the best of all pairs.

        All that is placed after it keeps its group.
        """
        found = None
        for banks, groups in ((1, self.groups), (self.banks, 1)):
            now, cost = (layout, least) if found is None else (found[0], found[2])
            found = self._best(self._places(now, buffer, banks, groups), cost) or found
        return found or self._best(self._places(layout, buffer, self.banks, self.groups), least)

    def _places(self, layout: _Layout, buffer: int, banks: int, groups: int) -> Iterator[_Layout]:
        """The layout with the buffer in each of so many banks and groups; in the one that it is in, if that is one."""
        for bank in range(banks) if banks > 1 else (layout.banks[buffer],):
            for group in range(groups) if groups > 1 else (layout.groups[buffer],):
                yield replace(
                    layout, banks=_with(layout.banks, buffer, bank), groups=_with(layout.groups, buffer, group)
                )

    def _swapped(self, layout: _Layout, buffer: int, least: float) -> tuple[_Layout, Addresses, float] | None:
        """The best other buffer to change places with."""
        at = layout.order.index(buffer)

        def with_other(other: int) -> _Layout:
            order = list(layout.order)
            order[at], order[other] = order[other], order[at]
            return replace(layout, order=tuple(order))

        return self._best((with_other(other) for other in range(len(layout.order)) if other != at), least)

    def _best(self, choices: object, least: float) -> tuple[_Layout, Addresses, float] | None:
        found = None
        for layout in choices:  # type: ignore[attr-defined]
            addresses = self._placed(layout)
            if addresses is None:
                continue
            if self.spent():
                break
            cost = self._cost(addresses, least)
            if cost < least:
                found, least = (layout, addresses, cost), cost
        return found

    def _placed(self, layout: _Layout) -> Addresses | None:
        """The addresses of a layout, or None where the memory ends before."""
        period = self.group_bytes * self.groups
        addresses = [0] * len(layout.order)
        taken: list[tuple[int, int, int]] = []  # in the order of their addresses: begin, end, buffer
        for buffer in layout.order:
            size, apart = self.room.sizes[buffer], self.room.apart[buffer]
            residue = layout.groups[buffer] * self.group_bytes
            low = layout.banks[buffer] * self.bank_bytes
            address = low + (residue - low) % period
            for begin, end, other in taken:
                if begin < address + size and address < end and other in apart:
                    address = end + (residue - end) % period
            if address + size > self.room.limit:
                return None
            addresses[buffer] = address
            insort(taken, (address, address + size, buffer))
        return tuple(addresses)


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
