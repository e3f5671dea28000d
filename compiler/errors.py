"""The errors a person can meet: what happened, where, the limit and the value, and what to do.

Every kind has one exit code and every error one stable code (``TW1203``). A phase that can find several problems
collects them in a :class:`Diagnostics` and raises them together, sorted by place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

EXIT_CODES: dict[int, str] = {
    0: "success",
    2: "usage: an option or argument is wrong",
    3: "input: a file cannot be read, or is refused before it is parsed (size, link, type)",
    4: "invalid: a program, chip file or array is read but breaks a rule",
    5: "unsupported: a valid request for something that does not exist here",
    6: "capacity: valid, but does not fit the chip",
    7: "incompatible: an artifact made for another instruction table, chip or format version",
    8: "corrupt: an artifact whose bytes do not match its checksums or structure",
    9: "hazard: the program has a race, deadlock, uninitialised read or leaked flag",
    10: "limit: a time, memory or instruction budget was used up",
    11: "different: a compiled model computes something else than the reference",
    70: "internal: a bug in tilewright",
    130: "interrupted",
}


@dataclass(frozen=True)
class Place:
    """Where in a text an error stands; ``line`` and ``column`` count from one."""

    file: str
    line: int = 0
    column: int = 0
    width: int = 1
    source: str = ""

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, in the order a reader wants it: code, message, place, hint."""

    code: str
    message: str
    place: Place | None = None
    hint: str = ""

    def render(self) -> str:
        head = f"error[{self.code}]: {self.message}"
        lines = [f"{self.place}: {head}" if self.place else head]
        if self.place and self.place.source:
            indent = " " * (self.place.column - 1)
            lines += [f"    {self.place.source}", f"    {indent}{'^' * max(1, self.place.width)}"]
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)


class TilewrightError(Exception):
    """Base of every error that is somebody's to fix; carries one or more problems."""

    exit_code: ClassVar[int] = 70

    def __init__(self, problems: Problem | list[Problem], *, is_answered: bool = False) -> None:
        """``is_answered``: standard output holds the verb's answer already, with these problems in it."""
        self.is_answered = is_answered
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(problem.render() for problem in self.problems))

    def __reduce__(self) -> tuple[type[TilewrightError], tuple[list[Problem]]]:
        """Exceptions pickle their message; this one crosses to another process with its problems."""
        return type(self), (self.problems,)


class UsageError(TilewrightError):
    exit_code = 2


class InputError(TilewrightError):
    exit_code = 3


class InvalidError(TilewrightError):
    exit_code = 4


class UnsupportedError(TilewrightError):
    exit_code = 5


class CapacityError(TilewrightError):
    exit_code = 6


class IncompatibleError(TilewrightError):
    exit_code = 7


class CorruptError(TilewrightError):
    exit_code = 8


class HazardError(TilewrightError):
    exit_code = 9


class LimitError(TilewrightError):
    exit_code = 10


class DifferentError(TilewrightError):
    exit_code = 11


@dataclass
class Diagnostics:
    """Collects the problems of one phase, so that all of them are reported at once."""

    problems: list[Problem] = field(default_factory=list)
    limit: int = 50

    def add(self, code: str, message: str, place: Place | None = None, hint: str = "") -> None:
        self.problems.append(Problem(code, message, place, hint))

    def raise_if_any(self, kind: type[TilewrightError] = InvalidError) -> None:
        if not self.problems:
            return
        ordered = sorted(
            self.problems, key=lambda p: (p.place.file, p.place.line, p.place.column) if p.place else ("", 0, 0)
        )
        shown = ordered[: self.limit]
        if len(ordered) > self.limit:
            shown.append(Problem("TW0001", f"{len(ordered) - self.limit} more problems are not shown"))
        raise kind(shown)
