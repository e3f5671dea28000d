"""Instructions of one's own choice for a nest: a function that stands for what a schedule has marked.

    @sequence
    def squared(nest, chip): yield Candidate("vsquare.fp32.1d", cycles=..., executions=1, build=lambda: ...)

    sch.annotate(loop, *squared.mark)

A marked nest is as one instruction to all passes before emission: nobody splits or reshapes it. Where the function has
no candidate, the nest is emitted as any other. The mark names the file of the function: the cache knows what changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from compiler.errors import InvalidError, Problem, TilewrightError
from compiler.operators.loading import described, place_in

MARK = "pragma_tw_own"
_SEQUENCES: dict[str, Callable[[Any, Any], Iterable[Any]]] = {}


def sequence(function: Any) -> Any:
    """Register a function ``(nest, chip) -> candidates and rejections``; its attribute ``mark`` marks a loop."""
    file = Path(function.__code__.co_filename)
    source = file.read_bytes() if file.is_file() else function.__code__.co_code
    name = f"{file.stem}.{function.__qualname__}@{hashlib.sha256(source).hexdigest()[:12]}"
    _SEQUENCES[name] = function
    function.mark = (MARK, name)
    return function


def own_sequence(pragmas: dict[str, Any]) -> Callable[[Any, Any], Iterable[Any]] | None:
    """What was registered for a mark."""
    mark = pragmas.get(MARK)
    function = None if mark is None else _SEQUENCES.get(str(getattr(mark, "value", mark)))
    return None if function is None else partial(_asked, function)


def _asked(function: Any, nest: Any, chip: Any) -> list[Any]:
    try:
        return list(function(nest, chip))
    except TilewrightError:
        raise
    except Exception as error:
        place = place_in(error, Path(function.__code__.co_filename))
        raise InvalidError(Problem("TW2128", f"sequence {function.__name__}: {described(error)}", place)) from error
