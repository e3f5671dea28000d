"""Whether what is read from memory can change how long a kernel takes, or only where it reads and writes."""

from __future__ import annotations

from collections import defaultdict

from compiler.cost.code import BRANCH, DISPATCH, HALT, LOOP, SCALAR_LOAD, SCALAR_STORE, WHOLE, Code

_SPILLED = 1 << 63  # a bit as those of registers: something of all that was spilled


def is_decided_by_data(code: Code) -> bool:
    """Whether a branch, a trip count, a size or a flag may come of a scalar that is read from memory.

    An address may: where in a line it lies is then taken to be its beginning.
    """
    if SCALAR_LOAD not in code.kind:
        return False
    count, first = len(code.kind), defaultdict[int, list[int]](list)
    for at in (code.kind == LOOP).nonzero()[0].tolist():
        first[int(code.target[at])].append(at + 1)
    before, waiting = {0: 0}, [0]  # an instruction: a bit for every register that data may decide before it
    while waiting:
        at = waiting.pop()
        state = before[at]
        # The counter of a loop is set anew for each turn.
        following = [(each, state & ~(1 << int(code.destination[each - 1]))) for each in first[at]]
        if at < count and code.kind[at] != HALT:
            if state & _registers(code, at, deciding=True):
                return True
            ways = [at + 1, int(code.target[at])] if code.kind[at] in (BRANCH, LOOP) else [at + 1]
            following += [(each, _after(code, at, state)) for each in ways]
        for each, after in following:
            if each not in before or after & ~before[each]:
                before[each] = before.get(each, 0) | after
                waiting.append(each)
    return False


def _after(code: Code, at: int, state: int) -> int:
    """What data may decide after an instruction."""
    kind, in_ub = code.kind[at], bool(code.in_ub[at])
    made, read = 1 << int(code.destination[at]) & ~1, state & _registers(code, at)
    if kind == SCALAR_STORE:
        return state | (_SPILLED if in_ub and read else 0)
    if kind == SCALAR_LOAD:
        spilled = in_ub and not code.register[at, 1]
        return state | made if not spilled or state & _SPILLED else state & ~made
    return state | made if read and kind not in (BRANCH, LOOP, DISPATCH) else state & ~made


def _registers(code: Code, at: int, *, deciding: bool = False) -> int:
    """A bit for every register that an instruction reads; of those ``deciding`` that its time or way depends on."""
    if deciding and code.kind[at] not in (BRANCH, LOOP, DISPATCH):
        return 0
    found = 0
    for slot in range(int(code.slots[at])):
        if not deciding or code.kind[at] != DISPATCH or code.key_mask[at, slot] == WHOLE:
            found |= 1 << int(code.register[at, slot])
    return found & ~1
