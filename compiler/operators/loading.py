"""Operators of a person's own: from a file, a package or an installed distribution.

All of them are Python, and are run: what is loaded can do whatever its reader can. Nothing that a model says decides
what is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from compiler.errors import InputError, InvalidError, Place, Problem, TilewrightError
from compiler.operators import registry

ENTRY_POINTS = "tilewright.operators"
Source = str | os.PathLike[str]
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_OTHER_TYPE = re.compile(r"Check failed: \(\w+\S*MatchesCode\(DLDataTypeCode::kDL(Int|Bool)\b")  # in the words of TVM
_LOADED: dict[Path, str] = {}  # the digest of what each file or package held


def load_operators(sources: Source | Iterable[Source]) -> None:
    """Declare the operators of files (``my_ops.py``), packages (a folder) and modules (``package.module``).

    They are run: load only what you would run. What has not changed since it was loaded is left alone.
    """
    for source in [sources] if isinstance(sources, str | os.PathLike) else sources:
        text = os.fspath(source)
        path = Path(text)
        if _MODULE.fullmatch(text) and not path.exists():
            _load_module(text)
        else:
            _load_path(path)


@cache
def load_entry_points() -> None:
    """Declare the operators of installed distributions: the modules that their entry points name."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: (one.value, one.name)):
        package = point.dist.name if point.dist is not None else "an installed package"
        with _whole(f"entry point {point.name!r} of {package}", None):
            point.load()


def _load_module(name: str) -> None:
    with _whole(f"module {name!r}", None):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise
            text = f"there is neither a file nor a module called {name!r}"
            raise InputError(Problem("TW2123", text, hint="name a file with its suffix: my_ops.py")) from error
    if not any(_is_of(one.function, Path(module.__file__ or "")) for one in registry.declared()):
        raise _declares_nothing(name)


def _load_path(path: Path) -> None:
    whole = path.resolve()
    file = whole / "__init__.py" if whole.is_dir() else whole
    if not file.is_file():
        what = f"{path} is no package: it has no __init__.py" if whole.is_dir() else f"no such file: {path}"
        raise InputError(Problem("TW2123", what))
    if file.suffix != ".py":
        raise InputError(Problem("TW2123", f"not a Python file: {path}", hint="operators are declared in Python"))
    digest = _digest(whole)
    if _LOADED.get(whole) == digest:
        return
    before = registry.declared()
    with _whole(str(path), whole):
        registry.forget(lambda one: _is_of(one.function, whole))
        _run(file, whole, path)
        if not any(_is_of(one.function, whole) for one in registry.declared()):
            registry.restore(before)
            raise _declares_nothing(str(path))
    _LOADED[whole] = digest


def _run(file: Path, whole: Path, shown: Path) -> ModuleType:
    """Run a file as a module of its own name; a package may import what is inside it."""
    name = f"tilewright_user_{whole.stem}_{hashlib.sha256(str(whole).encode()).hexdigest()[:8]}"
    for loaded in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[loaded]
    inside = [str(whole)] if whole.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
    if spec is None or spec.loader is None:
        raise InputError(Problem("TW2123", f"not a Python file: {shown}"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations, dataclasses and relative imports look their module up
    importlib.invalidate_caches()
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _whole(what: str, path: Path | None) -> Iterator[None]:
    """Everything within is declared or nothing is; whatever user code raises becomes an error with its line."""
    before = registry.declared()
    try:
        yield
    except TilewrightError as error:
        registry.restore(before)
        place = place_in(error, path)
        problems = [p if p.place or place is None else replace(p, place=place) for p in error.problems]
        raise type(error)(problems) from error
    except SyntaxError as error:
        registry.restore(before)
        place = Place(error.filename or what, error.lineno or 0, error.offset or 0, 1, (error.text or "").rstrip())
        raise InvalidError(Problem("TW2124", f"not Python: {error.msg}", place)) from error
    except KeyboardInterrupt:
        registry.restore(before)
        raise
    except BaseException as error:
        registry.restore(before)
        text = f"{what} cannot be loaded: {described(error)}"
        hint = "a package (a folder with an __init__.py) can import its own files: `from . import other`"
        missing = isinstance(error, ModuleNotFoundError)
        raise InvalidError(Problem("TW2125", text, place_in(error, path), hint if missing else "")) from error


def forget_files() -> None:
    """Load every file anew that is asked for from here on: what they declared is no longer there."""
    _LOADED.clear()


def described(error: BaseException) -> str:
    """An exception in one line, its type in front where that says something."""
    if found := _OTHER_TYPE.search(str(error)):
        return f"an operation on {'integers' if 'Int' in found[1] else 'truth values'} is given something else"
    text = (str(error).strip().splitlines() or [""])[-1]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_in(error: BaseException, path: Path | None) -> Place | None:
    """The innermost line of a file, or of a package's files, through which an exception came."""
    found, trace = None, error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if path is not None and (file == path or path in file.parents):
            found = Place(str(file), trace.tb_lineno)
        trace = trace.tb_next
    return found


def _declares_nothing(what: str) -> TilewrightError:
    hint = 'write @operator("domain::Name", schedule=...) above a function; `tilewright new-op Name` shows how'
    return InvalidError(Problem("TW2126", f"{what} declares no operator", hint=hint))


def _is_of(function: Any, path: Path) -> bool:
    file = Path(function.__code__.co_filename)
    return file == path or path in file.parents


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        digest.update(str(file).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def operators_of(source: Source) -> list[registry.Declared]:
    """What a file, package or module that is loaded declares, in the order of its lines."""
    text = os.fspath(source)
    module = sys.modules.get(text)
    path = Path(module.__file__ or "") if module is not None and not Path(text).exists() else Path(text).resolve()
    found = [one for one in registry.declared() if _is_of(one.function, path)]
    return sorted(found, key=lambda one: (one.function.__code__.co_filename, one.function.__code__.co_firstlineno))
