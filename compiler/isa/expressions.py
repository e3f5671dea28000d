"""Constant expressions of the assembler: exact, bounded, with everything a name can stand for."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from compiler.isa.lexer import NUMBER_HINT, Token, fail, unquoted
from compiler.isa.model import REGISTERS
from compiler.target import Chip

MAX_MAGNITUDE = 2**63
MAX_DEPTH = 64
_MAX_FRACTION_BITS = 2048
_MAX_EXPONENT = 100

FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "min": (2, min),
    "max": (2, max),
    "ceildiv": (2, lambda a, b: -(-a // b)),
    "align": (2, lambda a, b: -(-a // b) * b),
}
RESERVED = frozenset({*FUNCTIONS, "sizeof", "chip", "inf", "nan", *(f"x{i}" for i in range(REGISTERS))})


@lru_cache(maxsize=4096)
def _near(word: str, choices: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(word[:64], choices, n=1)
    return f"did you mean `{found[0]}`?" if found else ""


def did_you_mean(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    return _near(word, tuple(choices)[:2000]) or otherwise


class Symbol(NamedTuple):
    """What a name stands for and where it was defined."""

    kind: str  # constant | buffer | tiling | register | label
    value: int
    line: int
    size_bytes: int = 0


@dataclass
class Scope:
    """The names of a program. A name has one meaning, from the line that defines it to the end."""

    defines: Mapping[str, int]
    chip: Chip | None = None
    symbols: dict[str, Symbol] = field(default_factory=dict)
    used_defines: set[str] = field(default_factory=set)
    read_chip: bool = False
    _facts: dict[str, int] | None = None

    def define(self, token: Token, name: str, symbol: Symbol) -> None:
        if name in self.symbols:
            fail("TW1211", f"`{name}` is defined twice; first on line {self.symbols[name].line}", token)
        if token.kind == "name" and name in RESERVED:
            fail("TW1211", f"`{name}` has a meaning of its own and cannot be redefined", token)
        self.symbols[name] = symbol

    def value(self, token: Token, name: str) -> int:
        if token.kind == "name" and name.startswith("chip."):
            return self._fact(token, name)
        symbol = self.symbols.get(name) if token.kind == "string" or name not in RESERVED else None
        if symbol is None:
            if name in self.defines:
                self.used_defines.add(name)
                return self.defines[name]
            hint = did_you_mean(name, self.symbols, "declare it on an earlier line, or give it with -D")
            fail("TW1210", f"nothing is called `{name}` here", token, hint)
        if symbol.kind in ("register", "label"):
            fail("TW1221", f"`{name}` is a {symbol.kind}; this must be a constant", token)
        return symbol.value

    def size(self, token: Token, name: str) -> int:
        symbol = self.symbols.get(name)
        if symbol is None or symbol.kind != "buffer":
            buffers = [known for known, s in self.symbols.items() if s.kind == "buffer"]
            fail("TW1210", f"no buffer is called `{name}`", token, did_you_mean(name, buffers))
        return symbol.size_bytes

    def register(self, token: Token) -> int | None:
        """The register that a name stands for, if any."""
        if token.kind != "name":
            return None
        symbol = self.symbols.get(token.text)
        if symbol is not None and symbol.kind == "register":
            return symbol.value
        return register_index(token.text)

    def _fact(self, token: Token, name: str) -> int:
        if self.chip is None:
            fail("TW1218", f"`{name}` needs a chip", token, "name one: `.chip tw2` in the text, or --chip")
        self.read_chip = True
        if self._facts is None:
            self._facts = dict(_chip_facts(self.chip))
        if name not in self._facts:
            fail("TW1210", f"chips have no `{name}`", token, did_you_mean(name, self._facts))
        return self._facts[name]


@lru_cache(maxsize=64)
def _chip_facts(chip: Chip) -> tuple[tuple[str, int], ...]:
    facts = {"chip.cores": chip.cores}

    def walk(prefix: str, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            if isinstance(value, Mapping):
                walk(f"{prefix}.{key}", value)
            elif isinstance(value, int):
                facts[f"{prefix}.{key}"] = value
                if prefix == "chip.memory":
                    facts[f"chip.{key}"] = value

    walk("chip", chip.to_dict())
    return tuple(facts.items())


def register_index(text: str) -> int | None:
    if text[:1] == "x" and text[1:].isdecimal() and text[1:].isascii() and len(text) <= 3:
        index = int(text[1:])
        return index if index < REGISTERS and str(index) == text[1:] else None
    return None


# ---- tokens of one statement -------------------------------------------------------------------------------


class Cursor:
    """Reads the tokens of one statement from left to right."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def at(self, *texts: str) -> bool:
        return self.token.kind == "punct" and self.token.text in texts

    def at_end(self) -> bool:
        return self.token.kind == "end"

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str, why: str = "") -> Token:
        if not self.at(text):
            fail("TW1206", f"expected `{text}`{why}, found {self.token.shown}", self.token)
        return self.next()

    def expect_end(self) -> None:
        if not self.at_end():
            fail("TW1206", f"expected the end of the line, found {self.token.shown}", self.token)

    def name(self, what: str) -> tuple[Token, str]:
        """A name, bare or as a string."""
        token = self.next()
        if token.kind == "string":
            return token, unquoted(token)
        if token.kind != "name" or "." in token.text:
            fail("TW1206", f"expected {what}, found {token.shown}", token)
        return token, token.text


# ---- expressions -------------------------------------------------------------------------------------------

Number = int | Fraction
# Lowest first; comparisons give 0 or 1 and bind tighter than & and |.
_PRECEDENCE = {"|": 1, "&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "<<": 4, ">>": 4}
_PRECEDENCE |= {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_COMPARISON, ADDITIVE = 3, 5
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "|": lambda a, b: a | b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


class Expression:
    """Evaluates while it reads. ``real`` is the mode of fp32 operands: literals with a point, exact division."""

    def __init__(self, cursor: Cursor, scope: Scope, real: bool = False, comparisons: bool = False) -> None:
        self.cursor, self.scope, self.real, self.comparisons = cursor, scope, real, comparisons
        self.depth = 0

    def value(self, lowest: int = 1) -> Number:
        left = self._unary()
        while self.cursor.token.kind == "punct":
            operator = self.cursor.token
            rank = _PRECEDENCE.get(operator.text, 0)
            # Outside parentheses > may close a shape, so comparisons stand there only where no shape can.
            if rank < lowest or (rank == _COMPARISON and self.depth == 0 and not self.comparisons):
                break
            self.cursor.next()
            left = self._apply(operator, left, self.value(rank + 1))
        return left

    def integer(self) -> int:
        return int(self.value())

    def _unary(self) -> Number:
        sign = 1
        while self.cursor.at("-", "+"):
            sign = -sign if self.cursor.next().text == "-" else sign
        value = self._primary()
        return sign * value

    def _primary(self) -> Number:
        token = self.cursor.next()
        if token.kind in ("decimal", "int", "float"):
            return self._literal(token)
        if token.kind == "punct" and token.text == "(":
            return self._inside(lambda: self.value(), token)
        if token.kind == "string":
            return self.scope.value(token, unquoted(token))
        if token.kind == "name":
            if self.cursor.at("(") and (token.text in FUNCTIONS or token.text == "sizeof"):
                return self._call(token)
            if self.scope.register(token) is not None:
                fail("TW1221", f"register `{token.text}` stands where only a constant may", token,
                     "a register comes first: x1, x1 + 4, x1 - 4")  # fmt: skip
            return self.scope.value(token, token.text)
        hint = NUMBER_HINT if token.kind in ("raw", "shape") else ""
        fail("TW1206", f"expected a number, a name or `(`, found {token.shown}", token, hint)

    def _inside(self, read: Callable[[], Number], token: Token) -> Number:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            fail("TW1216", f"parentheses are nested more than {MAX_DEPTH} deep", token)
        value = read()
        self.depth -= 1
        self.cursor.expect(")", f" to close `(` at column {token.column + 1}")
        return value

    def _call(self, function: Token) -> Number:
        opening = self.cursor.next()
        if function.text == "sizeof":
            token, name = self.cursor.name("the name of a buffer")
            self.cursor.expect(")")
            return self.scope.size(token, name)
        arity, compute = FUNCTIONS[function.text]
        arguments: list[Number] = []

        def read() -> Number:
            arguments.append(self.value())
            while self.cursor.accept(","):
                arguments.append(self.value())
            return 0

        self._inside(read, opening)
        if len(arguments) != arity:
            fail("TW1209", f"{function.text} takes {arity} arguments, not {len(arguments)}", function)
        if function.text in ("ceildiv", "align") and arguments[1] <= 0:
            fail("TW1213", f"the second argument of {function.text} is {arguments[1]}; allowed: above 0", function)
        return self._bounded(compute(*arguments), function)

    def _literal(self, token: Token) -> Number:
        digits = token.text.replace("_", "")
        if token.kind == "float":
            if not self.real:
                fail("TW1212", f"`{token.text}` is not an integer, which this must be", token)
            return self._bounded(_decimal(token, digits), token)
        return self._bounded(int(digits, 0) if token.kind == "int" else int(digits), token)

    def _apply(self, operator: Token, left: Number, right: Number) -> Number:
        symbol = operator.text
        if symbol in ("/", "%") and right == 0:
            fail("TW1213", f"`{symbol}` by zero", operator)
        if symbol in ("<<", ">>", "&", "|", "%") and not (isinstance(left, int) and isinstance(right, int)):
            fail("TW1213", f"`{symbol}` needs integers", operator)
        if symbol in ("<<", ">>") and not 0 <= right < 64:
            fail("TW1213", f"a shift count is {right}; allowed: 0 to 63", operator)
        if symbol == "/" and self.real:
            exact = Fraction(left) / Fraction(right)
            return self._bounded(int(exact) if exact.denominator == 1 else exact, operator)
        return self._bounded(_OPERATIONS[symbol](left, right), operator)

    def _bounded(self, value: Number, token: Token) -> Number:
        if isinstance(value, int) and not self.real:
            if abs(value) > MAX_MAGNITUDE:
                fail("TW1213", f"a value of {value.bit_length()} bits; allowed: magnitudes up to 2**63", token)
        elif max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_FRACTION_BITS:
            fail("TW1213", f"a value needs more than {_MAX_FRACTION_BITS} bits", token)
        return value


def _decimal(token: Token, digits: str) -> Fraction:
    mantissa, _, exponent = digits.lower().partition("e")
    if exponent and (len(exponent) > 5 or abs(int(exponent)) > _MAX_EXPONENT):
        fail(
            "TW1212",
            f"the exponent of `{token.text}` is too large; allowed: -{_MAX_EXPONENT} to {_MAX_EXPONENT}",
            token,
        )
    return Fraction(digits if not mantissa.endswith(".") else f"{mantissa}0{digits[len(mantissa) :]}")


# ---- fp32 ---------------------------------------------------------------------------------------------------

INFINITY_BITS = 0x7F800000
NAN_BITS = 0x7FC00000
SIGN_BIT = 0x80000000


def float_bits(value: Number) -> int | None:
    """The bits of the fp32 nearest to an exact value, ties to even; None where it is too large for one."""
    if not value:
        return 0
    sign = SIGN_BIT if value < 0 else 0
    magnitude = abs(Fraction(value))
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), -126)
    if magnitude < Fraction(2) ** exponent and exponent > -126:
        exponent -= 1
    # round() of a Fraction is exact, ties to even; a carry into the next binade is a carry into the exponent bits.
    quotient = round(magnitude / Fraction(2) ** (exponent - 23))
    bits = ((exponent + 126) << 23) + quotient
    return None if bits >= INFINITY_BITS else sign | bits


def float_text(bits: int) -> str:
    """The shortest text that assembles to these bits."""
    magnitude = bits & ~SIGN_BIT
    if magnitude > INFINITY_BITS:
        return "nan" if bits == NAN_BITS else f"0f{bits:08x}"
    if magnitude == INFINITY_BITS:
        return "-inf" if bits & SIGN_BIT else "inf"
    text = str(np.uint32(bits).view(np.float32))
    return text if any(c in text for c in ".e") else f"{text}.0"
