"""What a kernel is told of where its parameters will lie: those in LLB, how much of it is left for the kernel, how far
from each other the rows of those are that are bands of other tensors, which ones other clusters read, too, and which
ones nobody writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import tirx

from compiler.target import Chip
from compiler.tir.structure import structural_map

CONSTANTS = "constants"  # attribute of a PrimFunc: the indices of parameters that no kernel of the model writes
NEAR = "near"  # attribute of a PrimFunc: the indices of parameters that are meant to lie in LLB
STRIDES = "strides"  # attribute of a PrimFunc: index and strides of each parameter that is a band of another tensor
COMMON = "common"  # attribute of a PrimFunc: the indices of parameters that all clusters read which do the same
ROOM = "llb_room"  # attribute of a PrimFunc: the bytes of LLB that the kernel may take for itself
TOLD = frozenset({CONSTANTS, NEAR, STRIDES, COMMON, ROOM})


def placed_near(func: Any, indices: Iterable[int], room_bytes: int) -> Any:
    return func.with_attrs({NEAR: sorted(indices), ROOM: room_bytes})


def held_in_common(func: Any, indices: Sequence[int]) -> Any:
    """The function with parameters that are the same, and nobody writes, on all clusters that run it."""
    return func.with_attr(COMMON, indices) if indices else func


def common_parameters(func: Any, chip: Chip) -> frozenset[Any]:
    """Those that clusters can load together."""
    common = _attribute(func, COMMON, ()) if chip.broadcasts else ()
    return frozenset(func.params[int(index)] for index in common)


def constant_parameters(func: Any) -> frozenset[Any]:
    """Those that no kernel writes, as far as that is known."""
    return frozenset(func.params[index] for index in constant_numbers(func))


def awaited_parameters(func: Any) -> frozenset[Any]:
    """Those that kernels before may write; none where nothing is known of that."""
    known = func.attrs is not None and CONSTANTS in func.attrs
    return frozenset(func.params) - constant_parameters(func) if known else frozenset()


def constant_numbers(func: Any) -> frozenset[int]:
    """Their indices."""
    return frozenset(int(index) for index in _attribute(func, CONSTANTS, ()))


def told_like(func: Any, like: Any, room_bytes: int) -> Any:
    """A function with the attributes of another one, told of the parameters that they have in common what that one is:
    some stages of a kernel have some of its parameters, and numbers of their own for them.
    """
    places = {param: index for index, param in enumerate(like.params)}
    numbers = {places[param]: index for index, param in enumerate(func.params) if param in places}
    numbered = (CONSTANTS, COMMON, STRIDES)
    func = func.with_attrs({name: value for name, value in like.attrs.items() if name not in numbered})
    if CONSTANTS in like.attrs:
        func = func.with_attr(CONSTANTS, _numbered(numbers, like.attrs[CONSTANTS]))
    func = placed_near(func, _numbered(numbers, _attribute(like, NEAR, ())), room_bytes)
    func = held_in_common(func, _numbered(numbers, _attribute(like, COMMON, ())))
    strides = strides_of_parameters(like)
    return strided(func, {number: strides[index] for index, number in numbers.items() if index in strides})


def _numbered(numbers: Mapping[int, int], indices: Iterable[Any]) -> list[int]:
    return sorted(numbers[int(index)] for index in indices if int(index) in numbers)


def strided(func: Any, strides: Mapping[int, Sequence[int]]) -> Any:
    """The function with parameters of which these are bands of other tensors."""
    return func.with_attr(STRIDES, [[index, *each] for index, each in strides.items()]) if strides else func


def strides_of_parameters(func: Any) -> dict[int, tuple[int, ...]]:
    """Of those that are bands of other tensors."""
    found = ([int(each) for each in entry] for entry in _attribute(func, STRIDES, ()))
    return {index: tuple(strides) for index, *strides in found}


def with_strides(func: Any) -> Any:
    """The function whose parameters have the strides that it was told of."""
    told = strides_of_parameters(func)
    if not told:
        return func
    made = {
        func.params[index]: tirx.decl_buffer(
            func.params[index].shape, func.params[index].dtype, func.params[index].name, strides=list(strides),
            scope=func.params[index].scope(), layout=None,
        )
        for index, strides in told.items()
    }  # fmt: skip
    body = structural_map(func.body, (tirx.Var, lambda var: made.get(var, var)))
    return tirx.PrimFunc([made.get(param, param) for param in func.params], body).with_attrs(dict(func.attrs.items()))


def placement(func: Any) -> str:
    """What a kernel is told, as text; empty where it is told nothing."""
    if func.attrs is None or ROOM not in func.attrs:
        return ""
    strides = strides_of_parameters(func)
    bands = f" strides {strides}" if strides else ""
    common = [int(index) for index in _attribute(func, COMMON, ())]
    shared = f" common {common}" if common else ""
    return f" near {[int(index) for index in _attribute(func, NEAR, ())]} room {int(func.attrs[ROOM])}{bands}{shared}"


def near_parameters(func: Any) -> frozenset[Any]:
    """The parameters that are meant to lie in LLB."""
    return frozenset(func.params[int(index)] for index in _attribute(func, NEAR, ()))


def memory_of_parameter(func: Any, buffer: Any) -> str:
    """Where a tensor from afar lies."""
    return "llb" if buffer in near_parameters(func) else "ddr"


def room_bytes(func: Any, chip: Chip) -> int:
    return int(_attribute(func, ROOM, chip.memory_bytes("llb")))


def _attribute(func: Any, name: str, default: Any) -> Any:
    return func.attrs[name] if func.attrs is not None and name in func.attrs else default
