"""The jobs of a model's kernels: a function for each, told where its parameters lie and how much of LLB is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import Any

from tvm import te

from compiler import graph
from compiler.buffers import Buffers
from compiler.clusters import common_parameters
from compiler.codegen.link import LLB_PLACEMENT
from compiler.codegen.residence import Foreseen, foresee, llb_pays
from compiler.frontend import Imported
from compiler.kernel_pool import Job
from compiler.kernel_uses import Use, written_parameters
from compiler.pipeline import Observer
from compiler.schedule.chains import Chain
from compiler.schedule.work import size_bytes
from compiler.target import Chip
from compiler.tiling.fusion import fuse, replaced_by
from compiler.tir.near import CONSTANTS, held_in_common, placed_near, strided
from compiler.tir.replaced import with_replaced
from compiler.tir.scopes import TIR_DTYPE

# Different operators of a model whose kernels are worth as many tries as if they were alone. DenseNet-121 has four
# times as many: where only kernels of four times the cycles are tried more than once, its program takes 0.2 % less at
# 224 pixels, 0.4 % more at 64, and a seventh less time to compile.
OPERATORS = 64


class KernelJobs:
    """Makes the jobs. Constants of which ``may_copy`` has the names are read from LLB, where that was foreseen."""

    def __init__(
        self,
        imported: Imported,
        module: Any,
        buffers: Buffers,
        chip: Chip,
        observer: Observer,
        *,
        tries: int | None,
        may_copy: frozenset[str],
    ) -> None:
        self.imported, self.module, self.buffers, self.chip = imported, module, buffers, chip
        self.may_copy, self._tries = may_copy, tries
        self._times = _times(len(imported.module.functions) - 1)
        # Functions, which stay alive, and what they are once they know where their parameters lie: calls that are alike
        # have the same one.
        self.told: dict[Any, tuple[Any, Any]] = {}
        self.near_pays = LLB_PLACEMENT not in observer.without and llb_pays(chip)
        foreseen = self._foreseen()
        self.copies = {name: buffers.copy_of(name) for name in foreseen.copied}
        self.fetched = dict[str, str]()  # what kernels bring to LLB for others, and where to
        self.near = {*foreseen.near, *self.copies.values()}
        self.room_bytes = min(foreseen.room_bytes, default=chip.memory_bytes("llb"))
        self.rooms = dict[str, int]()  # by what is called: pieces of a layer are alike
        for call, room in zip(self._calls, foreseen.room_bytes, strict=True):
            self.rooms[call.callee] = min(room, self.rooms.get(call.callee, room))

    @cached_property
    def _calls(self) -> list[graph.Call]:
        """The calls that need a kernel."""
        return [call for call in self.buffers.body.calls if not self.buffers.is_in_place(self.module, call)]

    # ---- what lies in LLB

    def _foreseen(self) -> Foreseen:
        steps = [self.buffers.arguments(call) for call in self._calls]
        if not self.near_pays:
            return Foreseen(frozenset(), (self.chip.memory_bytes("llb"),) * len(steps))
        in_place = {callee: replaced_by(self.module, callee) for callee in {call.callee for call in self._calls}}
        declared = self.buffers.placed(name for step in steps for name in step)
        replaced = [in_place[call.callee] for call in self._calls]
        return foresee(steps, declared, self.chip, replaced, copies=self.may_copy, gathered=self._gathered())

    def _gathered(self) -> Counter[str]:
        """How many bytes are read of tables by indices."""
        found: Counter[str] = Counter()
        for call in self._calls:
            if graph.attribute(self.module[call.callee], "tw.group") != "gather":
                continue
            body = graph.read(self.module[call.callee])
            names = dict(zip(body.params, self.buffers.arguments(call), strict=False))
            for inner in body.calls:
                operator = graph.attribute(self.module[inner.callee], "tw.operator")
                if operator == "Gather" and inner.arguments[0] in names:
                    found[names[inner.arguments[0]]] += size_bytes(inner.types[0])
        return found

    @cached_property
    def common(self) -> frozenset[str]:
        """Inputs and constants of which every cluster reads all, where each has a part of the batch and DDR can send
        the same to all of them.
        """
        if not self.chip.broadcasts:
            return frozenset()
        return frozenset(self.buffers.names[param] for param in common_parameters(self.module))

    def fetch(self, names: Iterable[str]) -> None:
        """Have these be brought to LLB by kernels that run before their readers."""
        self.fetched = {name: self.buffers.copy_of(name) for name in names}
        self.near |= set(self.fetched.values())

    def read(self, names: Iterable[str]) -> tuple[str, ...]:
        """The buffers that kernels work on for these: copies, where there are any."""
        return tuple(self.fetched.get(name, self.copies.get(name, name)) for name in names)

    def room_of(self, chain: Chain) -> int:
        """The bytes of LLB that one kernel for several calls may take while it runs."""
        return min(self.rooms[call.callee] for call in chain.calls)

    def between(self, kinds: Sequence[Any]) -> tuple[str, ...]:
        """Buffers between the kernels that one becomes, in LLB if there is room for them."""
        names = tuple(self.buffers.temporary(each) for each in kinds)
        if self.near_pays and sum(self.buffers.declared[name].size_bytes for name in names) <= self.room_bytes:
            self.near.update(names)
        return names

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """Buffers between kernels that are declared in here are gone after it."""
        near = set(self.near)
        with self.buffers.on_trial():
            yield
        self.near = near

    # ---- jobs

    def uses(self) -> list[Use]:
        """What needs a kernel, in order; every group is whole."""
        found, copied = list[Use](), set[str]()
        for call in self._calls:
            first = [n for n in dict.fromkeys(self.buffers.arguments(call)) if n in self.copies and n not in copied]
            copied.update(first)
            use = self._use(call)
            found += [*(self._copying(name, use) for name in first), use]
        return found

    def _use(self, call: graph.Call) -> Use:
        callee = self.module[call.callee]
        arguments = self.read(self.buffers.arguments(call))
        schedule = graph.attribute(callee, "tw.group")
        if schedule is None:  # a view that has to be copied
            return self.single(callee, "movement", arguments, call.name)
        return self.group(self.module, call.callee, arguments, self.rooms[call.callee])

    def group(self, module: Any, callee: str, arguments: tuple[str, ...], room_bytes: int) -> Use:
        """One kernel for all calls of a function of ``module``."""
        function = module[callee]
        members = tuple(str(name) for name in function.attrs["tw.calls"])
        job = self.job(fuse(module, function), str(function.attrs["tw.group"]), arguments, members, room_bytes)
        return Use(job, arguments, members, function if len(members) > 1 else None)

    def single(self, callee: Any, schedule: str, arguments: tuple[str, ...], member: str) -> Use:
        return Use(self.job(callee, schedule, arguments, (member,)), arguments, (member,))

    def _copying(self, constant: str, use: Use) -> Use:
        """What brings a constant to LLB, for the first kernel that reads it."""
        declared, arguments = self.buffers.declared[constant], (constant, self.copies[constant])
        given = te.placeholder((prod(declared.shape),), TIR_DTYPE[declared.dtype], "given")
        func = te.create_prim_func([given, te.compute(given.shape, lambda i: given[i], "copy")])
        return Use(self.job(func, "movement", arguments, use.members), arguments, use.members, share="copy")

    def job(
        self, func: Any, schedule: str, arguments: Sequence[str], members: Sequence[str], room_bytes: int | None = None
    ) -> Job:
        read, copies = len(arguments) - written_parameters(func), set(self.copies.values())
        lasting = [
            index
            for index, name in enumerate(arguments)
            if self.buffers.role(name) in ("constant", "input") or (name in copies and index < read)
        ]
        near = [index for index, name in enumerate(arguments) if name in self.near]
        room = self.room_bytes if room_bytes is None else room_bytes
        strides = {
            index: found
            for index, (name, param) in enumerate(zip(arguments, func.params, strict=False))
            if (found := self.buffers.parts.strides_of(name, [int(n) for n in param.shape])) is not None
        }
        common = [index for index in lasting if arguments[index] in self.common]
        told = hash(func), tuple(lasting), tuple(near), tuple(common), room, tuple(strides.items())
        if told not in self.told:
            placed = held_in_common(placed_near(func.with_attr(CONSTANTS, lasting), near, room), common)
            placed = strided(placed, strides)
            self.told[told] = func, with_replaced(placed)
        return Job(self.told[told][1], schedule, "+".join(self.nodes(members)), self._tries, self._times)

    def nodes(self, members: Sequence[str]) -> tuple[str, ...]:
        """The ONNX nodes that calls of the imported graph compute."""
        return tuple(dict.fromkeys(node for member in members for node in self.imported.nodes.get(member, (member,))))


def _times(operators: int) -> int:
    """Of a model of so many different operators each kernel is a small part: how many times the cycles it has to take
    to be worth as many tries. Powers of two: a kernel that is kept may be one of another model, too.
    """
    return 1 << max(0, (operators // OPERATORS).bit_length() - 1)
