"""Why a kernel is what it is: its group, its tile, and for every statement what it could have become at which cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from compiler import graph
from compiler.isa.disassembler import instruction_text
from compiler.kernel_uses import Use
from compiler.kernels import Choice, Kernel, NoRoadLeft, Road
from compiler.model_kernels import ModelKernels
from compiler.pipeline import Observer, kernel_passes
from compiler.report.tables import shape_text, some
from compiler.tir.scopes import ISA_DTYPE

EMISSION = "emit-instructions"


@dataclass(frozen=True)
class Member:
    """An operator of the group: what it is for the group, and what it computes."""

    operator: str
    nodes: tuple[str, ...]
    schedule: str
    result: str  # "fp32 4x6"
    role: str


@dataclass(frozen=True)
class Way:
    """Something that a statement can become; its total is executions * (cycles + overhead)."""

    instruction: str
    kind: str
    total_cycles: int
    executions: int
    cycles: int
    overhead_cycles: int
    description: str


@dataclass(frozen=True)
class Refusal:
    """An instruction that a statement cannot become."""

    instruction: str
    reason: str


@dataclass(frozen=True)
class Statement:
    """A leaf nest; the first of its ways is taken, the others follow by cost."""

    nest: str
    ways: tuple[Way, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class Explanation:
    """One kernel, as it is compiled now. Without a tile it does not run on the chip as one kernel: see ``parts``."""

    name: str
    nodes: tuple[str, ...]
    schedule: str
    members: tuple[Member, ...]
    end: str  # why nothing else is in the group
    tile: str = ""
    roads: tuple[Road, ...] = ()
    choices: tuple[Choice, ...] = ()  # the tile taken, and those it was compared with
    statements: tuple[Statement, ...] = ()
    cores: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    instructions: tuple[str, ...] = ()  # with the kernel's statements as comments between them
    parts: tuple[Explanation, ...] = ()


def explain(kernels: ModelKernels, use: Use) -> Explanation:
    """Compile a kernel once more, and watch. What cannot be one kernel is explained with its parts."""
    decisions: dict[str, list[Any]] = {}
    emission = next(one for one in kernel_passes() if one.name == EMISSION)

    def watch(kernel: str, name: str, before: Any, after: Any) -> None:
        if name == EMISSION:
            decisions[kernel] = list(emission.decisions)

    members, nodes, end = tuple(_members(kernels, use)), kernels.nodes(use), _end(kernels, use)
    job, head = use.job, (use.job.name, nodes, use.job.schedule, members, end)
    try:
        kernel = job.compiled(kernels.chip, Observer([watch]))
    except NoRoadLeft as error:
        parts = kernels.apart(use) if use.group is not None else ()
        return Explanation(*head, roads=error.roads, parts=tuple(explain(kernels, part) for part in parts))
    return Explanation(
        *head,
        tile=kernel.tile,
        roads=kernel.roads,
        choices=kernel.choices,
        statements=tuple(_statement(decision) for decision in decisions[kernel.choices[0].lowered_as]),
        cores=kernel.code.cores,
        memory=dict(kernel.code.memory),
        instructions=tuple(_listing(kernel)),
    )


def _statement(decision: Any) -> Statement:
    others = sorted((c for c in decision.candidates if c is not decision.chosen), key=lambda c: c.total_cycles)
    ways = tuple(
        Way(c.instruction, c.kind, c.total_cycles, c.executions, c.cycles, c.overhead_cycles, c.description)
        for c in (decision.chosen, *others)
    )
    refusals = dict.fromkeys(Refusal(r.instruction, r.reason) for r in decision.rejections)
    return Statement(str(decision.nest), ways, tuple(refusals))


def _listing(kernel: Kernel) -> Iterator[str]:
    code = kernel.code
    last = -1
    for index, (instr, statement) in enumerate(zip(code.instrs, code.statements, strict=True)):
        if statement not in (last, -1):
            yield f"; {code.texts[statement]}"
        last = statement
        yield instruction_text(instr, index)


# ---- groups ------------------------------------------------------------------------------------------------------


def _members(kernels: ModelKernels, use: Use) -> Iterator[Member]:
    if use.group is None:
        yield _member(kernels, use.job.func, use.members[0], "is the whole kernel")
        return
    body = graph.read(use.group)
    calls, kept = body.calls, set(body.results[:-1])
    functions = [kernels.module[call.callee] for call in calls]
    kinds = [str(graph.attribute(function, "tw.schedule")) for function in functions]
    leader = kinds.index(use.job.schedule) if use.job.schedule in kinds else 0
    for index, (function, name) in enumerate(zip(functions, use.members, strict=True)):
        if index == leader:
            role = "leads: the kernel is cut into tiles by its schedule"
        elif index < leader:
            role = "comes before: nothing outside the kernel reads its result"
        elif kept.intersection(calls[index].arguments):
            role = "follows: what it reads of the kernel is stored for others, too"
        else:
            role = "follows: nothing else reads what it reads of the kernel"
        yield _member(kernels, function, name, role)


def _member(kernels: ModelKernels, function: Any, name: str, role: str) -> Member:
    result = function.params[-1]
    return Member(
        operator=str(graph.attribute(function, "tw.operator", "a copy")),
        nodes=kernels.imported.nodes.get(name, (name,)),
        schedule=str(graph.attribute(function, "tw.schedule", "")),
        result=f"{ISA_DTYPE[str(result.dtype)]} {shape_text([int(n) for n in result.shape])}",
        role=role,
    )


def _end(kernels: ModelKernels, use: Use) -> str:
    body = kernels.buffers.body
    call = next((c for c in body.calls if _members_of(kernels, c) == use.members), None)
    if call is None:
        return "it is a part of a group that does not fit as one kernel"
    if graph.attribute(kernels.module[call.callee], "tw.group") is None:
        return "it copies a view of what has to stay as it is"
    readers = body.consumers.get(call.var, [])
    names = some(list(dict.fromkeys(name for r in readers if r is not None for name in _nodes(kernels, r)[:1])))
    if None in readers:
        return "its result is an output of the model"
    if len(readers) != 1:
        return f"its result is read by {len(readers)} others: {names}" if readers else "nothing reads its result"
    reader = kernels.module[readers[0].callee]
    kind = graph.attribute(reader, "tw.group", graph.attribute(reader, "tw.schedule"))
    if kind == "view":
        return f"its result is seen in another shape, by {names}"
    return f"its reader {names} is of a {kind} kernel, which nothing of another shape or class joins"


def _members_of(kernels: ModelKernels, call: graph.Call) -> tuple[str, ...]:
    """The calls of the imported graph that a call of the grouped one does."""
    return tuple(map(str, graph.attribute(kernels.module[call.callee], "tw.calls", (call.name,))))


def _nodes(kernels: ModelKernels, call: graph.Call) -> list[str]:
    return [node for name in _members_of(kernels, call) for node in kernels.imported.nodes.get(name, (name,))]


# ---- text --------------------------------------------------------------------------------------------------------


def lines(explanation: Explanation, with_instructions: bool, indent: str = "") -> Iterator[str]:
    """The explanation for a person."""
    for line in _lines(explanation, with_instructions):
        yield f"{indent}{line}".rstrip()
    for part in explanation.parts:
        yield ""
        yield from lines(part, with_instructions, f"{indent}  ")


def _lines(one: Explanation, with_instructions: bool) -> Iterator[str]:
    yield f"kernel of {some(one.nodes, 8)}, class {one.schedule}"
    yield "group:"
    for member in one.members:
        yield f"  {member.operator} {some(member.nodes)}, {member.result}: {member.role}"
    yield f"  it ends there: {one.end}"
    yield f"tile: {one.tile or 'none, it does not fit as one kernel'}"
    if len(one.choices) > 1:
        yield from _choice_lines(one.choices)
    for road in one.roads:
        yield f"  tried before: {road.what}: {road.why}"
    if not one.tile:
        yield "it is taken apart, operator by operator:" if one.parts else "it runs on the host"
        return
    memory = ", ".join(f"{name} {used:,}" for name, used in one.memory.items() if used)
    yield f"on {one.cores} cores; bytes of memory: {memory or 'none'}"
    for number, statement in enumerate(one.statements, 1):
        yield ""
        yield f"statement {number}: {statement.nest}"
        yield from _way_lines(statement)
    yield ""
    yield f"{len(one.statements)} statements, {_count(one):,} instructions; cycles are for each time a statement is met"
    if with_instructions:
        yield from (f"  {line}" for line in one.instructions)


def _choice_lines(choices: tuple[Choice, ...]) -> Iterator[str]:
    """Tiles that ranking thought about as good, by what the simulator, or else the cycle model, says of their code."""
    known = [f"{choice.simulated_cycles or choice.modelled_cycles or 0:,}" for choice in choices]
    width = max(map(len, known))
    for index, (cycles, choice) in enumerate(zip(known, choices, strict=True)):
        simulated = f"simulated, {choice.modelled_cycles:,} " if choice.simulated_cycles else ""
        about = f"{cycles:>{width}} cycles {simulated}predicted, ranked at {choice.ranked_cycles:,.0f}"
        yield f"  {' ' if index else '>'} {about}: {choice.tile}"


def _way_lines(statement: Statement) -> Iterator[str]:
    width = max(len(f"{way.total_cycles:,}") for way in statement.ways)
    for index, way in enumerate(statement.ways):
        cost = f"{way.executions:,} x ({way.cycles:,} + {way.overhead_cycles:,})"
        about = f", {way.description}" if way.description else ""
        yield f"  {' ' if index else '>'} {way.total_cycles:>{width},} cycles  {way.instruction}: {cost}{about}"
    for refusal in statement.refusals:
        yield f"    {'no':>{width}}         {refusal.instruction}: {refusal.reason}"


def _count(one: Explanation) -> int:
    return sum(not line.startswith(";") for line in one.instructions)
