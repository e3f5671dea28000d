"""The instruction set for readers, derived from the table: rows as data, as text, and all of docs/isa.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from compiler.isa import layout
from compiler.isa.declarations import DIRECTIVES, default_alignment
from compiler.isa.dtypes import ALIGNMENT_BYTES, DTYPES, INTERLOCKED, Queue
from compiler.isa.encoding import HEADER_FIELDS, allowed
from compiler.isa.expansion import MAX_EXPANDED_LINES, MAX_NESTING
from compiler.isa.expressions import FUNCTIONS
from compiler.isa.model import OFFSET_MAX, OFFSET_MIN, REGISTERS, Dest, Float, Int, Operand, Row, Shape, Target, Tensor
from compiler.isa.operands import operand_syntax
from compiler.isa.table import CLASSES, rows

_ROLES = {"r": "read", "w": "written", "rw": "read and written"}
_QUEUES = {
    Queue.S: "scalar unit: addresses, loops, dispatch",
    Queue.V: "vector unit, on UB",
    Queue.M: "cube, from L0A and L0B into L0C",
    Queue.MTE1: "copies from L1 to L0A, L0B, BT, FB, UB",
    Queue.MTE2: "loads from DDR and LLB",
    Queue.MTE3: "stores from UB",
    Queue.FIX: "fixpipe: L0C to anywhere, scaled, activated and rounded on the way",
}
_MEMORIES = {
    "ddr": "the chip's",
    "llb": "a cluster's",
    "l1": "in front of the cube",
    "l0a": "left cube operand",
    "l0b": "right cube operand",
    "l0c": "cube result",
    "ub": "vector operands and results",
    "bt": "bias of the cube",
    "fb": "scales of the fixpipe",
}


# ---- one row ------------------------------------------------------------------------------------------------


def describe(row: Row) -> dict[str, Any]:
    """All there is to say about a row, as plain data."""
    return {
        "mnemonic": row.mnemonic,
        "opcode": row.opcode,
        "class": row.category,
        "queue": _queue(row),
        "doc": row.doc,
        "syntax": row_syntax(row),
        "modifiers": [{"name": m.name, "choices": list(m.choices)} for m in row.modifiers],
        "operands": [_describe_operand(operand) for operand in row.operands],
        "rules": [_sentence(rule.__doc__ or "") for rule in row.rules],
    }


def _queue(row: Row) -> str:
    return row.queue.name if isinstance(row.queue, Queue) else f"chosen by {row.queue[1:]}"


def _sentence(text: str) -> str:
    return " ".join(text.split())


def row_syntax(row: Row) -> str:
    """How the instruction is written at its highest rank."""
    operands = ", ".join(operand_syntax(operand, _highest_rank(row)) for operand in row.operands)
    return f"{row.mnemonic}{''.join(f'.{m.name}' for m in row.modifiers)} {operands}".rstrip()


def _highest_rank(row: Row) -> int:
    return next((int(m.choices[-1][0]) for m in row.modifiers if m.name == "rank"), 3)


def _describe_operand(operand: Operand) -> dict[str, Any]:
    name = f"<{', '.join(operand.names)}>" if isinstance(operand, Shape) else operand.name
    return {"name": name, "kind": type(operand).__name__.lower(), "allowed": _allowed(operand), "doc": operand.doc}


def _allowed(operand: Operand) -> str:
    match operand:
        case Tensor():
            parts = [f"{_ROLES[operand.role]}, {_chosen(operand.dtype)} in {_chosen(operand.memory)}"]
            if operand.align:
                parts.append(f"address a multiple of {operand.align}")
            parts.append(_strides(operand))
            return "; ".join(parts)
        case Int():
            low, high = allowed(operand.slots(1)[0])
            multiple = f", a multiple of {operand.multiple}" if operand.multiple > 1 else ""
            return f"{low} to {high}{multiple}"
        case Shape():
            rank = ", as many as the rank" if operand.follows_rank and len(operand.names) > 1 else ""
            return f"1 to {operand.hi} each{rank}"
        case Float():
            return "an fp32"
        case Dest():
            return "a register"
        case Target():
            return "a label"


def _chosen(reference: str) -> str:
    return f"the {reference[1:]}" if reference.startswith("@") else reference


def _strides(tensor: Tensor) -> str:
    if tensor.strides == "dense":
        return "dense"
    if tensor.strides is not None:
        return "laid out by other operands"
    missing = f", {tensor.lacks} dimension fewer than the shape" if tensor.lacks else ""
    return f"strides in elements{missing}"


def row_text(row: Row) -> Iterator[str]:
    """A row for the terminal."""
    about = describe(row)
    yield about["syntax"]
    yield f"  {about['doc']}"
    yield ""
    yield f"  class {about['class']}, queue {about['queue']}, opcode {about['opcode']}"
    lines = [(f".{m['name']}", " ".join(m["choices"])) for m in about["modifiers"]]
    lines += [(o["name"], _joined(o)) for o in about["operands"]]
    width = max((len(name) for name, _ in lines), default=0)
    yield from (f"  {name:<{width}}  {text}" for name, text in lines)
    if about["rules"]:
        yield "  legal where:"
        yield from (f"    {rule}" for rule in about["rules"])


def _joined(operand: dict[str, Any]) -> str:
    return f"{operand['allowed']}: {operand['doc']}" if operand["doc"] else str(operand["allowed"])


# ---- the page -----------------------------------------------------------------------------------------------


_INTRODUCTION = """\
# Instruction set

{count} instructions. This page is written by `make isa-docs` from the instruction table in `compiler/isa/table/`, which
the assembler, both engines and the hazard checker read too.
"""

_ENCODING = """\
## Encoding

An instruction is a 64-bit header and 32-bit slots, in the order in which its operands are written, padded with a zero
word to a multiple of 64 bits. Words are little-endian, and all bits that mean nothing are zero.

{fields}

Modifiers lie in the order of the text from the lowest bit up, each the index of its choice in as few bits as hold all
of them, at least one. A bit of the register mask says that a slot has register form.

| slot | holds |
|---|---|
| in register form | the register in bits 0 to 4, an offset from {offset_min} to {offset_max} in bits 5 to 31 |
| integer, address, stride, extent | an int32 |
| float | the bits of an fp32; in register form the offset is 0 |
| register that is written | its number, never in register form |
| label | the distance in instructions from this one, never in register form |
"""

_ASSEMBLY = """\
## Assembly text

A line holds labels (`name:`), then an instruction or a directive. `;` and `//` begin a comment; inside brackets `;`
separates an address from its strides. Registers are `x0` to `x{last_register}`; `x0` reads as zero, and what is written
to it is lost.

| operand | written |
|---|---|
| tensor | `[address; s2, s1, s0]`: as many strides as it has, or one fewer where `s0` is 1 |
| shape | `<n2, n1, n0>` |
| integer, address, stride, extent | an expression, `x1`, `x1 + expression` or `x1 - expression` |
| float | `1.5`, `-2e-3`, `1/3`, `inf`, `-inf`, `nan`, `0f3fc00000` (its bits), or `x1` |
| label | its name |

An expression has numbers (`12`, `1_000`, `0x1f`, `0b101`), names, `+ - * / % << >> & |`, parentheses and the functions
{functions}. It is exact, within 2**63 either way;
`/` rounds down, except in a float operand, where it is exact. Comparisons (`== != < <= > >=`) give 0 or 1; they stand
in parentheses, or in `.if`, `.equ` and `.tiling`.

A buffer's name is its byte offset in its memory. `chip.cores`, `chip.ub_bytes`, `chip.vector.bytes_per_cycle` and so on
are what the chip's file says. Labels may be used before the line that defines them, other names only after it. A name
that is not a plain word is written `"like.this"`.

{directives}

MEMORY and TYPE are those of the tables above. SHAPE is `16x32`, an expression, or `[M, N / 2]`. What may follow it:
`align N`, `at ADDRESS`, `size BYTES` (where more than the shape needs) and `alias`. Without `at` a buffer lies behind
those declared before it, at a multiple of these bytes: {alignments}.
Buffers that overlap say `alias`.

`\\@` in a macro or a repetition is a number that no other expansion has, for labels. Expansion stops at {lines}
lines, and at blocks nested {nesting} deep.
"""


def markdown() -> str:
    """docs/isa.md."""
    parts = [
        _INTRODUCTION.format(count=len(rows())),
        "\n".join(_machine()),
        _ENCODING.format(
            fields="\n".join(_table("header field|bits", ((n, f"{a} to {a + b - 1}") for n, a, b in HEADER_FIELDS))),
            offset_min=OFFSET_MIN,
            offset_max=OFFSET_MAX,
        ),
        _ASSEMBLY.format(
            last_register=REGISTERS - 1,
            functions=", ".join([*(f"`{name}(a, b)`" for name in FUNCTIONS), "`sizeof(buffer)`"]),
            directives="\n".join(
                _table("directive|meaning", ((f"`{n} {usage}`", text) for n, (usage, text) in DIRECTIVES.items()))
            ),
            alignments=", ".join(f"{memory} {default_alignment(memory)}" for memory in ALIGNMENT_BYTES),
            lines=MAX_EXPANDED_LINES,
            nesting=MAX_NESTING,
        ),
        *("\n".join(_class(name)) for name in CLASSES),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _table(heading: str, lines: Iterable[tuple[str, ...]]) -> Iterator[str]:
    columns = heading.split("|")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    yield from (f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _machine() -> Iterator[str]:
    yield from ("## Queues and memories", "")
    yield from _table(
        "queue|works on|the next instruction may start", ((q.name, t, _when(q)) for q, t in _QUEUES.items())
    )
    yield ""
    units = ((m, t, ALIGNMENT_BYTES[m]) for m, t in _MEMORIES.items())
    yield from _table(
        "memory|what it is|an address is a multiple of",
        ((m, t, "its element" if unit == 1 else f"{unit} bytes") for m, t, unit in units),
    )
    yield ""
    yield from _table(
        "type|bytes|k0: elements of a fractal row",
        ((d.name, str(d.itemsize), str(d.fractal_k)) for d in DTYPES.values()),
    )
    about = layout.__doc__ or ""
    yield from ("", "```text", about[: about.rindex("===") + 3], "```", "")


def _when(queue: Queue) -> str:
    return "when the one before it has written" if queue in INTERLOCKED else "while the one before it is in flight"


def _class(name: str) -> Iterator[str]:
    members = [row for row in rows() if row.category == name]
    if not members:
        return
    about = (import_module(f"compiler.isa.table.{name}").__doc__ or "").strip()
    yield from (f"## {name}", "", *about.splitlines(), "")
    yield from _table(
        "instruction|what it does", ((f"[`{r.mnemonic}`](#{r.mnemonic})", _sentence(r.doc)) for r in members)
    )
    yield ""
    for row in members:
        yield from _row(row)


def _row(row: Row) -> Iterator[str]:
    about = describe(row)
    yield from (f"### {row.mnemonic}", "", "```", about["syntax"], "```")
    yield f"{_sentence(row.doc)} (queue {about['queue']}, opcode {row.opcode})"
    lines = [f"- `.{m['name']}`: {', '.join(m['choices'])}" for m in about["modifiers"]]
    lines += [f"- `{o['name']}`: {_joined(o)}" for o in about["operands"]]
    lines += [f"- legal where {rule}" for rule in about["rules"]]
    if lines:
        yield from ("", *lines)
    yield ""
