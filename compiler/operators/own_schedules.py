"""Schedule templates of one's own: `schedule=` of a declaration may be a function instead of the name of a class.

It is called as the templates of `compiler.tiling` are, ``(func, chip, attempt) -> Tiled``: attempt 0 is its best, each
next one asks for less memory, and `NoFeasibleTile` ends them. What it cannot cut is tried as the vector unit's work.
Kernels of such operators stand alone. The cache knows a template by the file that it is written in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler.errors import InvalidError, Problem, TilewrightError

_TEMPLATES: dict[str, OwnTemplate] = {}


class OwnTemplate:
    """A function in the form in which `compiler.kernels` takes templates."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__, self._function = name, function

    def schedule(self, func: Any, chip: Any, attempt: int) -> Any:
        from tvm.s_tir import ScheduleError

        from compiler.operators.loading import described, place_in

        try:
            found = self._function(func, chip, attempt)
        except (TilewrightError, ScheduleError):
            raise
        except Exception as error:
            place = place_in(error, Path(self._function.__code__.co_filename))
            raise InvalidError(Problem("TW2128", f"schedule {self.__name__}: {described(error)}", place)) from error
        if not (hasattr(found, "func") and hasattr(found, "description")):
            text = f"schedule {self.__name__} returns a {type(found).__name__}, not a Tiled"
            raise InvalidError(Problem("TW2128", text, hint="from compiler.tiling.template import Tiled"))
        return found


def named(function: Callable[..., Any]) -> str:
    """The name under which kernels find a template: it changes with the file that the function is written in."""
    file = Path(function.__code__.co_filename)
    source = file.read_bytes() if file.is_file() else function.__code__.co_code
    name = f"{file.stem}.{function.__qualname__}@{hashlib.sha256(source).hexdigest()[:12]}"
    _TEMPLATES[name] = OwnTemplate(name, function)
    return name


def own_template(schedule: str) -> OwnTemplate | None:
    return _TEMPLATES.get(schedule)
