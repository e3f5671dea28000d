"""The operands of one instruction: from tokens to slot values, as the row declares them, and how they are written."""

from __future__ import annotations

from compiler.isa.encoding import form, value_fault
from compiler.isa.expressions import (
    ADDITIVE,
    INFINITY_BITS,
    NAN_BITS,
    SIGN_BIT,
    Cursor,
    Expression,
    Scope,
    float_bits,
)
from compiler.isa.lexer import Fault, Token, fail
from compiler.isa.model import Dest, Float, Operand, Reg, Row, Shape, Slot, Target, Tensor, Value


class Operands:
    """Reads the operands of one instruction into slot values."""

    def __init__(self, row: Row, mods: tuple[str, ...], cursor: Cursor, scope: Scope) -> None:
        self.row, self.cursor, self.scope = row, cursor, scope
        self.rank = row.rank(mods)
        self.slots = form(row, mods).slots
        self.values: list[Value] = []
        self.labels: list[tuple[int, Token]] = []
        self.faults: list[Fault] = []

    def read(self) -> None:
        cursor = self.cursor
        for number, operand in enumerate(self.row.operands):
            if number and not cursor.at_end():
                cursor.expect(",", f" before {_described(operand)}")
            if cursor.at_end():
                usage = syntax(self.row, self.rank)
                message = f"{self.row.mnemonic} lacks {_described(operand)}"
                fail("TW1209", message, cursor.token, f"it is written {usage}")
            self._operand(operand)
        if cursor.at(","):
            usage = syntax(self.row, self.rank) if self.row.operands else "without operands"
            fail("TW1209", f"{self.row.mnemonic} has too many operands", cursor.token, f"it is written {usage}")
        cursor.expect_end()

    def _operand(self, operand: Operand) -> None:
        match operand:
            case Tensor():
                self._tensor(operand)
            case Shape():
                self._shape(operand)
            case Float():
                self._float()
            case Dest():
                token = self.cursor.next()
                index = self.scope.register(token)
                if index is None:
                    message = f"{operand.name} must be a register, x0 to x31; found {token.shown}"
                    fail("TW1209", message, token)
                self._add(index, token)
            case Target():
                token = self.cursor.next()
                if token.kind != "name":
                    fail("TW1209", f"{operand.name} must be a label; found {token.shown}", token)
                self.labels.append((len(self.values), token))
                self.values.append(0)
            case _:
                self._linear()

    def _slot(self) -> Slot:
        return self.slots[len(self.values)]

    def _add(self, value: Value, start: Token) -> None:
        slot = self._slot()
        self.values.append(value)
        fault = value_fault(slot, value)
        if fault:
            last = self.cursor.tokens[self.cursor.position - 1]
            width = last.column + len(last.text) - start.column
            self.faults.append(Fault("TW1212", f"{self.row.mnemonic}: {fault}", start.column, max(1, width)))

    def _linear(self) -> None:
        start = self.cursor.token
        self._add(linear(self.cursor, self.scope), start)

    def _shape(self, operand: Shape) -> None:
        opening = self.cursor.token
        if not self.cursor.accept("<"):
            fail("TW1209", f"expected {_described(operand)}, found {opening.shown}", opening)
        count = len(operand.slots(self.rank))
        names = ", ".join(slot.name for slot in operand.slots(self.rank))
        for index in range(count):
            if index and not self.cursor.accept(","):
                fail("TW1209", f"the shape has {index} extents; {self.row.mnemonic} needs <{names}>", self.cursor.token)
            self._linear()
        if self.cursor.at(","):
            fail("TW1209", f"the shape has too many extents; {self.row.mnemonic} needs <{names}>", self.cursor.token)
        self.cursor.expect(">", " to close the shape")

    def _tensor(self, operand: Tensor) -> None:
        opening = self.cursor.token
        if not self.cursor.accept("["):
            fail("TW1209", f"expected {_described(operand)}, found {opening.shown}", opening)
        self._linear()
        count = len(operand.slots(self.rank)) - 1
        first = len(self.values)
        if self.cursor.accept(";"):
            self._linear_stride(operand, count, first)
            while self.cursor.accept(","):
                self._linear_stride(operand, count, first)
        given = len(self.values) - first
        if given == count - 1:  # the innermost stride is one
            self.values.append(1)
        elif given < count:
            fail("TW1209", f"`{operand.name}` has {given} strides; allowed: {_strides(count)}", self.cursor.token,
                 f"it is written {tensor_syntax(operand, self.rank)}")  # fmt: skip
        self.cursor.expect("]", f" to close `{operand.name}`")

    def _linear_stride(self, operand: Tensor, count: int, first: int) -> None:
        if len(self.values) - first == count:
            written = tensor_syntax(operand, self.rank)
            message = f"`{operand.name}` has too many strides; allowed: {_strides(count)}"
            fail("TW1209", message, self.cursor.token, f"it is written {written}")
        self._linear()

    def _float(self) -> None:
        cursor, start = self.cursor, self.cursor.token
        sign = 0
        register = self.scope.register(start)
        if register is not None:
            cursor.next()
            self._add(Reg(register), start)
            return
        if cursor.at("-", "+") and cursor.peek(2).text in (",", "") and cursor.peek().kind in ("name", "float", "raw"):
            sign = SIGN_BIT if cursor.next().text == "-" else 0
        token = cursor.token
        special = {"inf": INFINITY_BITS, "nan": NAN_BITS}
        if token.kind == "raw":
            bits = int(cursor.next().text[2:], 16)
        elif token.kind == "name" and token.text in special:
            bits = special[cursor.next().text]
        else:
            exact = float_bits(Expression(cursor, self.scope, real=True).value())
            if exact is None:
                fail("TW1212", f"{self._slot().name} is beyond the largest fp32, 3.4028235e+38", start, "write inf")
            bits = exact
        self._add(bits ^ sign, start)


_CLOSING = frozenset({",", ";", "]", ">", ""})


def linear(cursor: Cursor, scope: Scope) -> Value:
    """A constant, or one register plus or minus constants, in any order."""
    first, following = cursor.token, cursor.peek()
    if first.kind == "decimal" and following.text in _CLOSING and len(first.text) < 19 and first.text.isdecimal():
        return int(cursor.next().text)  # most operands are this simple
    if scope.register(cursor.token) is None and not _has_register(cursor, scope):
        return Expression(cursor, scope).integer()
    register, offset = None, 0
    sign = 1
    while True:
        token = cursor.token
        index = scope.register(token)
        if index is not None and register is None and sign > 0:
            cursor.next()
            register = index
        elif index is not None:
            fail("TW1221", "a value holds one register, added once", token, "registers: x1, x1 + 4, x1 - 4")
        else:
            offset += sign * int(Expression(cursor, scope).value(ADDITIVE + 1))
        if not cursor.at("+", "-"):
            break
        sign = 1 if cursor.next().text == "+" else -1
    return offset if register is None else Reg(register, offset)


def _has_register(cursor: Cursor, scope: Scope) -> bool:
    """Whether a register follows in the sum that begins here."""
    depth = 0
    for token in cursor.tokens[cursor.position :]:
        if token.kind == "punct":
            depth += (token.text in "([") - (token.text in ")]")
            if depth < 0 or (depth == 0 and token.text in (",", ";", "]", ">")):
                return False
        elif depth == 0 and scope.register(token) is not None:
            return True
    return False


# ---- what an instruction looks like ---------------------------------------------------------------------------


def syntax(row: Row, rank: int) -> str:
    """The operands of a row as they are written."""
    return f"{row.mnemonic} {', '.join(operand_syntax(operand, rank) for operand in row.operands)}".rstrip()


def operand_syntax(operand: Operand, rank: int) -> str:
    if isinstance(operand, Tensor):
        return tensor_syntax(operand, rank)
    if isinstance(operand, Shape):
        return f"<{', '.join(slot.name for slot in operand.slots(rank))}>"
    return operand.name


def tensor_syntax(tensor: Tensor, rank: int) -> str:
    strides = [slot.name.rpartition(".")[2] for slot in tensor.slots(rank)[1:]]
    return f"[{tensor.name}; {', '.join(strides)}]" if strides else f"[{tensor.name}]"


def _described(operand: Operand) -> str:
    kinds = {Tensor: "the tensor", Shape: "the shape", Dest: "the register", Target: "the label"}
    kind = kinds.get(type(operand), "the value")
    return f"{kind} <{', '.join(operand.names)}>" if isinstance(operand, Shape) else f"{kind} `{operand.name}`"


def _strides(count: int) -> str:
    if count == 0:
        return "none, they are fixed"
    return f"{count}, or {count - 1} with the innermost being 1"
