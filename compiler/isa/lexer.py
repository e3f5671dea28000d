"""Assembly text to lines and tokens, each with its place; and the one exception that points at a token."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from compiler.errors import Place

MAX_LINE_CHARS = 4096
_SHOWN_CHARS = 160

_TOKEN = re.compile(
    r"""
    [ \t\r\f\v]*(?:
    (?P<comment>;.*|//.*)
  | (?P<directive>\.[A-Za-z_]\w*)
  | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
  | (?P<raw>0f[0-9a-fA-F]{8})
  | (?P<int>0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0[bB]_*[01][01_]*)
  | (?P<shape>[0-9]+(?:x[0-9]+)+)
  | (?P<float>[0-9][0-9_]*\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<decimal>[0-9][0-9_]*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<punct><<|>>|<=|>=|==|!=|[][()<>,;:+\-*/%&|=])
    )
    """,
    re.VERBOSE | re.ASCII,
)
_SPACES = " \t\r\f\v"
_NUMBERS = ("raw", "int", "shape", "float", "decimal")
_ESCAPE = re.compile(r"\\(?:([\\\"])|u\{([0-9a-fA-F]{1,6})\})")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Call(NamedTuple):
    """The macro call or repetition that a line comes from, and where that one comes from."""

    what: str
    line: int
    parent: Call | None


class Line(NamedTuple):
    """One line as it is assembled: after substitution where it comes from a macro."""

    number: int
    text: str
    call: Call | None = None


class Token(NamedTuple):
    kind: str  # directive | name | raw | int | shape | float | decimal | string | punct | end
    text: str
    column: int  # from zero

    @property
    def shown(self) -> str:
        return "the end of the line" if self.kind == "end" else f"`{self.text}`"


@dataclass
class Fault(Exception):
    """Something wrong with a line, at a column. Becomes a problem of the file; assembly goes on with the next line."""

    code: str
    message: str
    column: int = 0
    width: int = 1
    hint: str = ""


def fail(code: str, message: str, token: Token, hint: str = "") -> NoReturn:
    raise Fault(code, message, token.column, max(1, len(token.text)), hint)


def place(file: str, line: Line, column: int, width: int) -> Place:
    """Where an error in a line is shown. What the line holds may neither steer a terminal nor fill it."""
    fits = column + width <= _SHOWN_CHARS
    source = "".join(c if c.isprintable() else " " for c in line.text[:_SHOWN_CHARS]).rstrip() if fits else ""
    return Place(file, line.number, column + 1, width, source)


def tokenize(text: str) -> list[Token]:
    """The tokens of one line, closed by an ``end`` token. ``;`` inside brackets separates, elsewhere it comments."""
    tokens: list[Token] = []
    text = text.rstrip(_SPACES)
    position, depth, end = 0, 0, len(text)
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            _bad_character(text, position + len(text[position:]) - len(text[position:].lstrip(_SPACES)))
        kind, found = match.lastgroup or "", match[match.lastgroup or 0]
        position = match.end()
        start = position - len(found)
        if kind == "punct":
            if found in "[]":
                depth = max(0, depth + (1 if found == "[" else -1))
        elif kind == "comment":
            if depth == 0 or found[0] == "/":
                text = text[:start].rstrip(_SPACES)
                break
            kind, found, position = "punct", ";", start + 1
        elif kind in _NUMBERS and position < end:
            _check_number(text, start, position)
        tokens.append(Token(kind, found, start))
    tokens.append(Token("end", "", len(text)))
    return tokens


def _bad_character(text: str, position: int) -> NoReturn:
    char = text[position]
    if char == '"':
        raise Fault("TW1205", "a string is not closed", position, len(text) - position)
    hint = "comments begin with ; or //" if char == "#" else ""
    if char == "\\":
        hint = "\\name stands for a parameter, inside a macro or a repetition only"
    shown = char if char.isprintable() else f"U+{ord(char):04X}"
    raise Fault("TW1205", f"the character `{shown}` means nothing here", position, 1, hint)


def _check_number(text: str, start: int, end: int) -> None:
    stop = end
    while stop < len(text) and (text[stop].isalnum() or text[stop] in "_."):
        stop += 1
    if stop > end:
        raise Fault("TW1205", f"`{text[start:stop]}` is not a number", start, stop - start, NUMBER_HINT)


NUMBER_HINT = "numbers: 12, 1_000, 0x1f, 0b101, 1.5, 2.5e-3, 0f3fc00000 (the bits of an fp32); shapes: 16x32"


def without_comment(text: str) -> str:
    """A line without its comment: what a macro keeps of its body."""
    if ";" not in text and "//" not in text:
        return text
    depth, position = 0, 0
    while position < len(text):
        char = text[position]
        if char == '"':
            closing = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, position)
            position = closing.end() if closing else len(text)
            continue
        if char in "[]":
            depth = max(0, depth + (1 if char == "[" else -1))
        if (char == ";" and depth == 0) or text.startswith("//", position):
            return text[:position]
        position += 1
    return text


def is_name(text: str) -> bool:
    return _PLAIN_NAME.fullmatch(text) is not None


def quoted(text: str) -> str:
    """A name as the assembler reads it: bare where it can be, else as a string."""
    return text if is_name(text) else string(text)


def string(text: str) -> str:
    """A string token with this content, on one line and printable."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in escaped) + '"'


def unquoted(token: Token) -> str:
    """The content of a string token."""
    body = token.text[1:-1]

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        code = int(match[2], 16)
        if code > 0x10FFFF:
            fail("TW1205", f"U+{code:X} is not a character", token)
        return chr(code)

    result = _ESCAPE.sub(replace, body)
    if "\\" in _ESCAPE.sub("", body):
        fail("TW1205", 'a string has an escape that is not one of \\\\ \\" \\u{hex}', token)
    return result
