"""Compiled kernels on disk, by the content of everything that went into them, and what was decided for whole models.

A key has four parts: the kernel's IR, the chip, the compiler's own sources with the versions below it, and the class of
the schedule. A file that does not hold what its name says is a miss, and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from compiler.artifact.files import open_regular, write_atomically
from compiler.codegen.storage import from_tables, to_tables
from compiler.errors import TilewrightError
from compiler.kernels import Kernel, Road
from compiler.target import Chip
from compiler.tir.near import COMMON, NEAR, ROOM, STRIDES, placement

FORMAT = 1
PACKAGES = ("compiler", "passes")
SOURCES = (".py", ".json")  # what ranking has learned decides, too
MAX_ENTRY_BYTES = 256 << 20
# Nothing else is removed from the folder, whatever folder somebody names.
_ENTRY = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}\.json")
_HALF_WRITTEN = re.compile(r"\.[0-9a-f]{32}-[0-9a-f]{31}\..+\.tmp")
# What reading and decoding an entry can raise, whatever its bytes are.
_UNUSABLE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, TilewrightError)


@dataclass(frozen=True)
class Key:
    """Digests of the parts; equal keys mean equal code."""

    function: str
    schedule: str
    chip: str
    compiler: str

    @property
    def file_name(self) -> str:
        whole = hashlib.sha256("\n".join((self.schedule, self.chip, self.compiler)).encode()).hexdigest()
        return f"{self.function[:32]}-{whole[:32]}.json"


@dataclass
class KernelCache:
    """A folder of kernels; reading and writing never fail, they only miss."""

    folder: Path
    hits: int = 0
    misses: int = 0

    def load(self, key: Key, name: str) -> Kernel | None:
        try:
            found = self._read(key, name)
        except _UNUSABLE:
            self.misses += 1
            return None
        self.hits += 1
        return found

    def why_not(self, key: Key) -> str:
        """Why `load` would miss; empty where it would hit."""
        try:
            self._read(key, "")
        except _UNUSABLE as error:
            if not (self.folder / key.file_name).exists():
                return self._nearest(key)
            reason = error.problems[0].message if isinstance(error, TilewrightError) else str(error)
            return f"its entry cannot be used: {reason or type(error).__name__}"
        return ""

    def store(self, key: Key, kernel: Kernel) -> None:
        content = {
            "code": to_tables(kernel.code),
            "tile": kernel.tile,
            "roads": [[road.what, road.why] for road in kernel.roads],
            "statistics": kernel.statistics,
        }
        self.store_content(key, content)

    def content(self, key: Key) -> Any:
        """What was stored under a key, or None."""
        try:
            return _content(_tables(self.folder / key.file_name), key)
        except _UNUSABLE:
            return None

    def store_content(self, key: Key, content: Any) -> None:
        """What JSON can hold, under a key that no kernel has."""
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        whole = {"format": FORMAT, "key": vars(key), "sha256": _digest(text), "content": text}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path, entry = self.folder / key.file_name, json.dumps(whole).encode()
            write_atomically(path, lambda file: _write(file, entry), "the cache entry", is_durable=False)
        except (OSError, TilewrightError):
            return  # a full or read-only disk costs time, not the compilation

    def entries(self) -> Iterator[Path]:
        yield from self._named(_ENTRY)

    def clear(self) -> tuple[int, int]:
        """Remove all entries, and what killed processes left half written; how many entries there were, their bytes."""
        count = size = 0
        for path in self.entries():
            size += _size(path)
            path.unlink(missing_ok=True)
            count += 1
        for path in self._named(_HALF_WRITTEN):
            path.unlink(missing_ok=True)
        return count, size

    def size_bytes(self) -> int:
        return sum(map(_size, self.entries()))

    def _named(self, pattern: re.Pattern[str]) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if pattern.fullmatch(path.name) and not path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self, key: Key, name: str) -> Kernel:
        return _kernel(_tables(self.folder / key.file_name), key, name)

    def _nearest(self, key: Key) -> str:
        """What the entry of the same kernel that differs least was made with."""
        nearest: list[str] | None = None
        for path in self.entries():
            if not path.name.startswith(f"{key.function[:32]}-"):
                continue
            try:
                other = dict(_tables(path)["key"])
            except _UNUSABLE:
                continue
            differing = [part for part in ("schedule", "chip", "compiler") if other.get(part) != getattr(key, part)]
            if nearest is None or len(differing) < len(nearest):
                nearest = differing
        if nearest is None:
            return "never compiled before"
        return f"known, but with another {' and another '.join(nearest)}"


def default_folder() -> Path:
    """``TILEWRIGHT_CACHE``, or a folder where the system wants caches to be."""
    chosen = os.environ.get("TILEWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (never raises)
    return Path(root) / "tilewright" / "kernels"


def why_unusable(folder: Path) -> str:
    """Why nothing can be kept in a folder; empty where it can, or could once it is made."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not there.is_dir():
        return "it is no folder" if there == folder else f"{there} is no folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def key_of(func: Any, schedule: str, chip: Chip, tries: int | None = None, times: int = 1) -> Key:
    """The key of a kernel; names that say nothing of the code are left out.

    Which of its tensors lie in LLB, and what is left of that, follows from the chip and is told apart like it.
    """
    machine = chip.content_hash + placement(func)
    for name in list(func.attrs.keys() if func.attrs else ()):
        if name in ("global_symbol", COMMON, NEAR, ROOM, STRIDES) or name.startswith("tw."):
            func = func.without_attr(name)
    searched = schedule if tries is None else f"{schedule}, {tries} tries"
    searched += f", {times} times the cycles for a try" if times > 1 else ""
    return Key(_digest(func.script(show_meta=True)), searched, machine, compiler_digest())


@cache
def compiler_digest() -> str:
    """All sources of the compiler, and the versions of what it stands on."""
    import tvm

    from compiler.isa.table import table_hash

    root = Path(__file__).parent.parent
    digest = hashlib.sha256(f"{FORMAT} {tvm.__version__} {sys.version_info[:2]} {table_hash()}".encode())
    for package in PACKAGES:
        for path in sorted(path for path in (root / package).rglob("*") if path.suffix in SOURCES):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _tables(path: Path) -> Any:
    """What an entry holds; raises for what cannot be one."""
    with open_regular(path, "the cache entry") as (file, size):
        if size > MAX_ENTRY_BYTES:
            raise ValueError(f"{size} bytes are too many")
        return json.loads(file.read(MAX_ENTRY_BYTES))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another process clears, too
        return 0


def _content(tables: Any, key: Key) -> Any:
    if tables["format"] != FORMAT or tables["key"] != vars(key) or tables["sha256"] != _digest(tables["content"]):
        raise ValueError("it does not hold what its name says")
    return json.loads(tables["content"])


def _kernel(tables: Any, key: Key, name: str) -> Kernel:
    content = _content(tables, key)
    return Kernel(
        name,
        from_tables(content["code"]),
        str(content["tile"]),
        tuple(Road(str(what), str(why)) for what, why in content["roads"]),
        {str(kind): int(count) for kind, count in content["statistics"].items()},
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(file: Any, entry: bytes) -> None:
    file.write(entry)
