"""Several products of one kernel, as kernels of their own: what tiles are chosen for, and joined of again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tvm import s_tir, tirx

from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.fusion import renamed
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tiling.template import NoFeasibleTile
from compiler.tir.near import room_bytes, told_like
from compiler.tir.structure import structural_map, structural_walk

Begin = Callable[[Any, Master], tuple[Any, Any]]  # of a product: its first block, and the buffer that this one reads


@dataclass(frozen=True)
class Parts:
    """The products as kernels of their own; each but the last writes last what the next one reads first."""

    functions: tuple[Any, ...]
    kept: dict[int, Any] = field(default_factory=dict)  # by product: the parameter for what others read of it, too

    @staticmethod
    def of(func: Any, chip: Chip, name: str, begin: Begin | None = None) -> Parts:
        """Those of which a kernel is made: the stages from one's first block, by default its windows, to the next's."""
        room = room_bytes(func, chip)
        func, results = made_inside(func, room)
        sch = schedule_of(func)
        products = masters_of(sch)
        if len(products) < 2:
            raise NoFeasibleTile(name, "anything but several products")
        func = sch.mod["main"]
        root = func.body.block
        begins = [(begin or _windows)(sch, each) for each in products[1:]]
        between = [buffer for _, buffer in begins]
        if not all(any(one.same_as(buffer) for buffer in root.alloc_buffers) for one in between if one is not None):
            raise NoFeasibleTile(name, "a product of something else than the one before it makes")
        nests, places = list(root.body.seq), []
        for block, _ in begins:
            places.append(next(i for i, nest in enumerate(nests) if writes(nest, block.writes[0].source)))
        if None in between or places != sorted(places):
            raise NoFeasibleTile(name, "products that are not one after another")
        found = []
        for at, (start, end) in enumerate(pairwise([0, *places, len(nests)])):
            ends = between[at - 1] if at else None, between[at] if at < len(between) else None
            found.append(part_of(func, nests[start:end], ends, room))
        kept = {at: results[one] for at, one in enumerate(between) if one in results}
        if len(kept) < len(results):
            raise NoFeasibleTile(name, "results that no product is made of")
        return Parts(tuple(found), kept)

    def joined(self, like: Any) -> Any:
        """One kernel of all, with the parameters of ``like``."""
        names, nests, inner = dict[str, int](), list[Any](), list[Any]()
        own, before = {param.name: param for param in like.params}, None  # some may be read by no stage
        for at, part in enumerate(self.functions):
            block, params = part.body.block, list(part.params)
            parts = _nests(block.body)
            if before is not None:
                read = params.pop(0)
                parts = [_with(one, read, before) for one in parts]
            if at < len(self.functions) - 1:
                before = params.pop()
                inner.append(before)
            nests += parts
            inner += list(block.alloc_buffers)
            own |= {param.name: param for param in params}
        body = tirx.SeqStmt([renamed(nest, names) for nest in nests])
        root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=inner)
        params = [own[param.name] for param in like.params]
        return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attrs(dict(like.attrs.items()))


def made_inside(func: Any, room: int) -> tuple[Any, dict[Any, Any]]:
    """The function with buffers of its own in the place of results that other stages of it read; these results, by
    buffer.
    """
    root, written, read = func.body.block, set[Any](), set[Any]()

    def stage(block: Any) -> None:
        own = {region.source for region in block.writes}
        written.update(own)
        read.update({region.source for region in block.reads} - own)

    structural_walk(root, (s_tir.SBlock, stage))
    results = [param for param in func.params if param in written and param in read]
    if not results:
        return func, {}
    made = {one: tirx.decl_buffer(one.shape, str(one.dtype), f"{one.name}_made", layout=None) for one in results}
    body = structural_map(root.body, (tirx.Var, lambda var: made.get(var, var)))
    inner = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[*root.alloc_buffers, *made.values()])
    params = [param for param in func.params if param not in made]
    alone = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, inner))
    return told_like(alone, func, room), {buffer: result for result, buffer in made.items()}


def _windows(sch: Any, master: Master) -> tuple[Any, Any]:
    """The block that makes the windows, and the feature map."""
    block = sch.get(sch.get_producers(master.block)[0])
    return block, block.reads[0].source if block.reads else None


def _with(nest: Any, buffer: Any, other: Any) -> Any:
    """A nest with another buffer in the place of one."""
    return structural_map(nest, (tirx.Var, lambda var: other if var.same_as(buffer) else var))


def writes(nest: Any, buffer: Any) -> bool:
    found: list[Any] = []
    structural_walk(nest, (tirx.BufferStore, lambda store: found.append(store.buffer.same_as(buffer))))
    return any(found)


def _nests(body: Any) -> list[Any]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def part_of(func: Any, nests: Sequence[Any], ends: tuple[Any, Any], room: int) -> Any:
    """The function of some stages; it reads the one of ``ends`` first, and writes the other last."""
    used = set[Any]()
    for nest in nests:
        structural_walk(nest, (tirx.Var, used.add))
    between = [one for one in ends if one is not None]
    own = [param for param in func.params if param in used]
    params = [*(one for one in ends[:1] if one is not None), *own, *(one for one in ends[1:] if one is not None)]
    inner = [b for b in func.body.block.alloc_buffers if b in used and not any(b.same_as(one) for one in between)]
    body = tirx.SeqStmt(list(nests)) if len(nests) > 1 else nests[0]
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=inner)
    return told_like(tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)), func, room)


def may_stay(problems: Sequence[Any], chip: Chip, follows: Callable[[Any, Any], bool]) -> bool:
    """Whether what lies between products of a row may stay in L1: all are known and each ``follows`` the one before."""
    known = all(problem is not None for problem in problems)
    return known and cube.path(chip, "ub", "l1") and all(follows(*pair) for pair in pairwise(problems))
