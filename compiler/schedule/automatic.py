"""The schedule that nobody wrote: how calls of a graph run best on a chip, by what each of them is thought to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from compiler import graph
from compiler.codegen.residence import KEPT_SHARE, TIGHT_SHARE
from compiler.schedule.choice import Choice, Problem
from compiler.schedule.cuts import Cuts
from compiler.schedule.pieces import cut_axis
from compiler.schedule.storage import Operator, Storage, storage_of
from compiler.schedule.work import Work, cycles_of, read_shares, work_of
from compiler.target import Chip

MOST_PIECES = 64
# Of more counts than this only those are tried that are so many times the one before: each is compared with each.
MOST_COUNTS = 9
COUNTS_APART = 1.5
PACKED_SHARE = 0.95  # of the room, what lives at once may take: tensors of many sizes leave gaps between them
# Of the cycles of a schedule that leaves room for what pieces are still to be made, what one takes that leaves none:
# not everything may then find a place.
SNUG_PAYS = 0.995
# Tensors that are tried in DDR: so many at a time, the largest of those that are made so few calls from a break and
# take more than this part of the room. And how many of them are to lie there.
TRIED_AT_ONCE = 4
NEAR_BREAK = 5
LARGE_SHARE = 0.25
MOST_FAR = 2


@dataclass(frozen=True)
class Way:
    """How the calls of main run; what modules and caches keep of it are numbers, and lists of them."""

    choice: Choice

    @property
    def numbers(self) -> list[Any]:
        choice = self.choice
        return [[*choice.order], [*choice.counts], sorted(choice.breaks), choice.cycles, choice.bound_cycles]

    @staticmethod
    def of(numbers: Any) -> Way | None:
        """None where these are no way's."""
        try:
            order, counts, breaks, cycles, bound_cycles = numbers
            order, counts, breaks = (tuple(map(int, each)) for each in (order, counts, breaks))
            return Way(Choice(order, counts, int(cycles), frozenset(breaks), int(bound_cycles)))
        except (TypeError, ValueError):
            return None

    def suits(self, body: graph.Body, cuts: Cuts) -> bool:
        """Whether the calls are those of ``body``: each runs once, behind what it reads, in pieces that it can be cut
        into.
        """
        order, counts = self.choice.order, self.choice.counts
        if sorted(order) != list(range(len(body.calls))) or len(counts) != len(order):
            return False
        made = {body.calls[at].var: place for place, at in enumerate(order)}
        made |= {var: made[source] for var, (source, _) in body.fields.items() if source in made}
        calls = [body.calls[at] for at in order]
        return all(
            (count == 1 or (count > 1 and cuts.inputs(call.callee, count) is not None))
            and all(made.get(argument, -1) < place for argument in call.arguments)
            for place, (call, count) in enumerate(zip(calls, counts, strict=True))
        )


def best_way(module: Any, cuts: Cuts, chip: Chip) -> Way:
    """How the calls of main run best on a chip whose LLB keeps what lies between them: with room left for what kernels
    could share there, or without, where that is better. (Programs then take fewer cycles by even more: of six large
    models that are thought to take 0.3 to 2 % less, 1 to 10 %.)
    """
    body = graph.read(module["main"])
    storage = storage_of(module, body)
    candidates = [] if fits(storage, chip) else _candidates(module, body)
    own, cost = frozenset(body.params), Cost(module, storage, chip)
    problem = Problem(
        storage,
        [cuts.counts(call, candidates, own) for call in body.calls],
        cost.cycles,
        1000 / chip.bandwidth.ddr_bytes_per_kilocycle,
        int(room_bytes(chip) * PACKED_SHARE),
    )
    if not candidates:
        return Way(relieved(problem, cost))
    found = _ahead_or_snug(problem, cost)
    tight = _ahead_or_snug(replace(problem, room_bytes=int(chip.memory_bytes("llb") * TIGHT_SHARE)), cost)
    chosen = tight if tight.cycles < found.cycles else found
    return Way(replace(chosen, bound_cycles=min(found.bound_cycles, tight.bound_cycles)))


def _ahead_or_snug(problem: Problem, cost: Cost) -> Choice:
    ahead, snug = (relieved(replace(problem, room_ahead=room_ahead), cost) for room_ahead in (True, False))
    chosen = snug if snug.cycles < ahead.cycles * SNUG_PAYS else ahead
    return replace(chosen, bound_cycles=min(ahead.bound_cycles, snug.bound_cycles))


def relieved(problem: Problem, cost: Cost) -> Choice:
    """The best choice, with tensors near its breaks in DDR as long as that is better: they leave their room to others.

    What no choice takes less than is then what calls take that each have the chip for themselves.
    """
    found, taken = problem.best(), problem.storage
    for _ in range(MOST_FAR):
        ways = [
            (replace(problem, storage=storage, cost=cost.of(storage).cycles).best(), storage)
            for storage in _with_one_more_far(taken, found, problem.room_bytes)
        ]
        best, storage = min(ways, key=lambda way: way[0].cycles, default=(found, taken))
        if best.cycles >= found.cycles:
            break
        found, taken = best, storage
    if taken is problem.storage:
        return found
    least = sum(min(cost.cycles(at, count, True) for count in counts) for at, counts in enumerate(problem.allowed))
    return replace(found, bound_cycles=min(found.cycles, int(least)))


def _with_one_more_far(storage: Storage, found: Choice, room_bytes: int) -> Iterator[Storage]:
    places = {at: place for place, at in enumerate(found.order)}

    def is_candidate(number: int) -> bool:
        tensor = storage.tensors[number]
        if not tensor.is_between or tensor.size_bytes <= room_bytes * LARGE_SHARE:
            return False
        return any(abs(places[tensor.made] - at) <= NEAR_BREAK for at in found.breaks)

    able = sorted(filter(is_candidate, range(len(storage.tensors))), key=lambda n: -storage.tensors[n].size_bytes)
    yield from map(storage.with_far, able[:TRIED_AT_ONCE])


def undivided_cycles(module: Any, chip: Chip) -> float:
    """Of main as it is, where nothing between its kernels stays on the chip."""
    cost = Cost(module, storage_of(module, graph.read(module["main"])), chip)
    borders = max(0, sum(not operator.is_view for operator in cost.storage.operators) - 1)
    barriers = chip.sync.core_barrier_cycles * borders if chip.clusters > 1 else 0
    return barriers + cost.of_all(near=False)


def cycles_on_chip(module: Any, chip: Chip) -> float:
    """Of main as it is, where there is room for all that lies between its kernels."""
    return Cost(module, storage_of(module, graph.read(module["main"])), chip).of_all(near=True)


def room_bytes(chip: Chip) -> int:
    """Of LLB, for what lies between kernels; the rest is for kernels themselves."""
    return int(chip.memory_bytes("llb") * KEPT_SHARE)


def fits(storage: Storage, chip: Chip, share: float = KEPT_SHARE) -> bool:
    """Whether all that lives at once stays on the chip as it is, where it may take such a share of LLB."""
    return max(storage.live_bytes, default=0) <= int(chip.memory_bytes("llb") * share)


def _candidates(module: Any, body: graph.Body) -> list[int]:
    """The counts that divide what the model is given, not too many of them."""
    inputs = body.params[: int(graph.attribute(module["main"], "num_input", len(body.params)))]
    extents = {shape[cut_axis(shape)] for value in inputs if (shape := graph.shape_of(value))}
    found = sorted({n for extent in extents for n in range(2, min(extent, MOST_PIECES) + 1) if extent % n == 0})
    return found if len(found) <= MOST_COUNTS else _apart(found)


def _apart(counts: list[int]) -> list[int]:
    found = counts[:1]
    for count in counts:
        if count >= found[-1] * COUNTS_APART:
            found.append(count)
    return found


class Cost:
    """What calls take."""

    def __init__(self, module: Any, storage: Storage, chip: Chip) -> None:
        self.module, self.storage, self.chip = module, storage, chip
        self.cycles = cache(self._cycles)
        self.work = cache(self._work_of)
        self._shares = cache(self._shares_of)

    def of(self, storage: Storage) -> Cost:
        """The same where tensors lie elsewhere."""
        other = Cost(self.module, storage, self.chip)
        other.work, other._shares = self.work, self._shares
        return other

    def of_all(self, *, near: bool) -> float:
        """Of all calls, none in pieces."""
        return sum(self.cycles(at, 1, near) for at in range(len(self.storage.operators)))

    def _cycles(self, at: int, count: int, near: bool) -> float:
        """Of all pieces of a call."""
        operator = self.storage.operators[at]
        if operator.is_view:
            return 0.0
        work, between, far, whole = self.work(operator.callee), 0, 0, 0
        read = self._read_bytes(operator)
        made = {number: self.storage.tensors[number].size_bytes for number in operator.makes}
        for number, size in (*read.items(), *made.items()):
            tensor = self.storage.tensors[number]
            if tensor.is_between:
                between += size
            elif tensor.is_same_for_all_pieces and size == tensor.size_bytes:
                whole += self.own_bytes(number)
            else:
                far += size
        near_bytes, far_bytes = (between, far) if near else (0, between + far)
        if work.cube_cycles:
            far_bytes += _read_again(sum(read.values()) - whole, whole, self.chip.clusters)
        return count * cycles_of(work, count, near_bytes, far_bytes, whole, self.chip)

    def own_bytes(self, number: int) -> int:
        """Of all of a tensor, what DDR moves for this chip: clusters that read the same read it together."""
        tensor = self.storage.tensors[number]
        return tensor.size_bytes // (self.chip.alike if tensor.is_common and self.chip.broadcasts else 1)

    def _read_bytes(self, operator: Operator) -> dict[int, int]:
        """By tensor: what all pieces of a call read of it together, each byte once."""
        shares = dict[int, float]()
        portions = operator.portions or (1.0,) * len(operator.arguments)
        for number, share, portion in zip(operator.arguments, self._shares(operator.callee), portions, strict=True):
            shares[number] = min(1.0, shares.get(number, 0.0) + share * portion)
        return {number: round(self.storage.tensors[number].size_bytes * share) for number, share in shares.items()}

    def _shares_of(self, callee: str) -> tuple[float, ...]:
        return read_shares(self.module, callee)

    def _work_of(self, callee: str) -> Work:
        return work_of(self.module, callee, self.chip)


def _read_again(data_bytes: int, weight_bytes: int, clusters: int) -> int:
    """What clusters that share the rows and columns of a product read of its operands, beyond once."""
    ways = [(rows, clusters // rows) for rows in range(1, clusters + 1) if clusters % rows == 0]
    return min(data_bytes * (columns - 1) + weight_bytes * (rows - 1) for rows, columns in ways)
