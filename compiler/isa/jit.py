"""Compilation of inner loops, cached on disk under a hash of all that went into them. Imported only by who runs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

Function = Callable[..., Any]


class Locator(UserProvidedCacheLocator):
    """Copies of the project share what was compiled: sources decide where it is, not the folder that they are in."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        return Path(py_file).parent.name


@lru_cache(maxsize=8)
def _cache_dir(folder: Path) -> Path | None:
    """A directory for exactly the sources in a folder, and the instruction table's. numba itself notices only changes
    of a function's own file, while kernels contain functions of files beside theirs and of the table."""
    isa = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted({*isa.rglob("*.py"), *folder.glob("*.py")}):
        digest.update(source.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 (never raises)
    for base in (root, Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}"):
        directory = base / "tilewright" / f"kernels-{digest.hexdigest()[:16]}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(directory, os.W_OK) and directory.stat().st_uid == os.getuid():
            return directory
    return None


def compiled_before() -> bool:
    """Whether an earlier process has left the simulator's compiled code for this version."""
    directory = _cache_dir(Path(__file__).parent.parent / "sim")
    return directory is not None and any(directory.rglob("*.nbc"))


def kernel(function: Function) -> Function:
    """Compile for speed: no exceptions on division, no global lock, cached between processes.

    Every array that crosses a call counts its references, some 5 ns each: kernels that do little per instruction are
    one long function for that reason.
    """
    directory = _cache_dir(Path(function.__code__.co_filename).parent)
    previous = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES  # type: ignore[attr-defined]
    config.CACHE_DIR = str(directory or "")  # type: ignore[attr-defined]
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{Locator.__name__}"  # type: ignore[attr-defined]
    try:
        compiled: Function = numba.njit(cache=directory is not None, error_model="numpy", nogil=True)(function)
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = previous  # type: ignore[attr-defined]
    return compiled


def inlined(function: Function) -> Function:
    """Compile a function that only kernels call."""
    compiled: Function = numba.njit(error_model="numpy", nogil=True)(function)
    return compiled
