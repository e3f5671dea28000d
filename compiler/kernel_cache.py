"""Compiled kernels on disk, by the content of everything that went into them.

A key has four parts: the kernel's IR, the chip, the compiler's own sources with the versions below it, and the class of
the schedule. A file that does not hold what its name says is a miss, and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from compiler.artifact.files import write_atomically
from compiler.codegen.storage import from_tables, to_tables
from compiler.errors import TilewrightError
from compiler.kernels import Kernel, Road
from compiler.target import Chip

FORMAT = 1
PACKAGES = ("compiler", "passes")


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
    reasons: list[str] = field(default_factory=list)

    def load(self, key: Key, name: str) -> Kernel | None:
        try:
            tables = json.loads((self.folder / key.file_name).read_text(encoding="utf-8"))
            found = _kernel(tables, key, name)
        except (OSError, ValueError, KeyError, TypeError, TilewrightError) as error:
            self.misses += 1
            self.reasons.append(f"{name}: {self._why(key, error)}")
            return None
        self.hits += 1
        return found

    def store(self, key: Key, kernel: Kernel) -> None:
        content = {
            "code": to_tables(kernel.code),
            "tile": kernel.tile,
            "roads": [[road.what, road.why] for road in kernel.roads],
            "statistics": kernel.statistics,
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        whole = {"format": FORMAT, "key": vars(key), "sha256": _digest(text), "content": text}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(
                self.folder / key.file_name, lambda file: _write(file, json.dumps(whole)), "the cache entry"
            )
        except (OSError, TilewrightError):
            return  # a full or read-only disk costs time, not the compilation

    def entries(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from sorted(self.folder.glob("*-*.json"))

    def clear(self) -> tuple[int, int]:
        """Remove all entries; how many there were, and their bytes."""
        count = size = 0
        for path in self.entries():
            size += path.stat().st_size
            path.unlink(missing_ok=True)
            count += 1
        return count, size

    def _why(self, key: Key, error: Exception) -> str:
        """Why there was no use in looking: what the nearest entry was made with."""
        if not isinstance(error, FileNotFoundError):
            return f"its entry cannot be used ({type(error).__name__})"
        for path in self.folder.glob(f"{key.function[:32]}-*.json"):
            try:
                other = json.loads(path.read_text(encoding="utf-8"))["key"]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            differing = [part for part in ("schedule", "chip", "compiler") if other.get(part) != getattr(key, part)]
            return f"known, but with another {' and another '.join(differing)}"
        return "never compiled before"


def default_folder() -> Path:
    root = os.environ.get("TILEWRIGHT_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return Path(root or Path.home() / ".cache") / "tilewright" / "compiled"


def key_of(func: Any, schedule: str, chip: Chip) -> Key:
    """The key of a kernel; names that say nothing of the code are left out."""
    for name in list(func.attrs.keys() if func.attrs else ()):
        if name == "global_symbol" or name.startswith("tw."):
            func = func.without_attr(name)
    return Key(_digest(func.script(show_meta=True)), schedule, chip.content_hash, compiler_digest())


@cache
def compiler_digest() -> str:
    """All sources of the compiler, and the versions of what it stands on."""
    import tvm

    from compiler.isa.table import table_hash

    root = Path(__file__).parent.parent
    digest = hashlib.sha256(f"{FORMAT} {tvm.__version__} {sys.version_info[:2]} {table_hash()}".encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _kernel(tables: Any, key: Key, name: str) -> Kernel:
    if tables["format"] != FORMAT or tables["key"] != vars(key) or tables["sha256"] != _digest(tables["content"]):
        raise ValueError(name)
    content = json.loads(tables["content"])
    return Kernel(
        name,
        from_tables(content["code"]),
        str(content["tile"]),
        tuple(Road(str(what), str(why)) for what, why in content["roads"]),
        {str(kind): int(count) for kind, count in content["statistics"].items()},
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(file: Any, text: str) -> None:
    file.write(text.encode())
