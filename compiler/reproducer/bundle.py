"""Writes a bundle: the command that failed with its files, and all that a person needs to know of the failure."""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
import traceback
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from compiler import __version__

FORMAT = 1
INDEX, REPORT = "bundle.json", "report.txt"
FULL, STRUCTURE, NONE = KEPT = ("full", "structure", "none")
# Larger ones are left out, and of models their weights.
MAX_FILE_BYTES = 256 << 20
INPUTS = {".onnx", ".toml", ".npy", ".twasm", ".twm", ".py"}
WRITTEN = {"-o", "--output", "--html", "--timeline", "--trace", "--flame", "--overlay", "--dump-ir", "--folder"}
PACKAGES = ("numpy", "numba", "ml_dtypes", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


@dataclass
class Bundle:
    """What stands in a bundle: the words of the command, with files by their place in it, and the files."""

    keep: str
    arguments: list[str] = field(default_factory=list)
    files: dict[str, bytes | Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, arguments: Sequence[str]) -> None:
        before = ""
        for word in arguments:
            option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
            self.arguments.append(f"{option}{equals}{self._rewritten(option or before, value)}" if value else word)
            before = word

    def _rewritten(self, option: str, value: str) -> str:
        """A word that is a path, or NAME=PATH, with the path that it has in the bundle."""
        name, equals, path = value.rpartition("=")
        if option in WRITTEN:
            return f"{name}{equals}out/{_safe(Path(path).name)}"
        if option == "--chip" and not Path(value).suffix:
            return self._shipped_chip(value)
        if Path(path).suffix in INPUTS and Path(path).is_file():
            return f"{name}{equals}{self._added(Path(path))}"
        return f"{name}{equals}missing/{_safe(Path(path).name)}" if Path(path).is_absolute() else value

    def _shipped_chip(self, name: str) -> str:
        """With the values that it has here, wherever the bundle is replayed."""
        from compiler.target import chip_names
        from compiler.target.chip_file import SHIPPED

        return self._added(SHIPPED / f"{name}.toml") if name in chip_names() else name

    def _added(self, path: Path) -> str:
        folder = f"files/{len(self.files)}"
        target = f"{folder}/{_safe(path.name)}"
        is_large = path.stat().st_size > MAX_FILE_BYTES
        if path.suffix == ".onnx":
            self._add_model(path, folder, target, is_large)
        elif is_large:
            self.notes.append(f"{path.name} is too large and was left out")
        else:
            self.files[target] = path
        return target

    def _add_model(self, path: Path, folder: str, target: str, is_large: bool) -> None:
        from compiler.reproducer.structure import external_files, without_weights

        try:
            beside = {name: path.parent / name for name in external_files(path)}
        except Exception:  # noqa: BLE001  whatever is wrong with the model may be what the bundle is about
            beside = {}
        size = sum(file.stat().st_size for file in beside.values() if file.is_file())
        is_plain = all(_safe(name) == name and file.is_file() for name, file in beside.items())
        if self.keep == FULL and not is_large and size <= MAX_FILE_BYTES and is_plain:
            self.files[target] = path
            self.files |= {f"{folder}/{name}": file for name, file in beside.items()}
            return
        self.files[target] = without_weights(path)
        self.notes.append(f"{path.name} has made-up weights")


def write_bundle(error: BaseException, arguments: Sequence[str], keep: str) -> tuple[Path, list[str]]:
    """Write a bundle to a new file of the system's folder for such, and answer it with what was left out of it."""
    bundle = Bundle(keep)
    bundle.add(arguments)
    index = {
        "format": FORMAT,
        "arguments": bundle.arguments,
        "error": summary(error),
        "where": where(error),
        "traceback": "".join(traceback.format_exception(error)),
        "notes": bundle.notes,
        "versions": versions(),
    }
    descriptor, name = tempfile.mkstemp(prefix="tilewright-internal-", suffix=".zip")
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(INDEX, json.dumps(index, indent=2))
        archive.writestr(REPORT, "\n".join(_report_lines(index)))
        for target, content in bundle.files.items():
            if isinstance(content, bytes):
                archive.writestr(target, content)
            else:
                archive.write(content, target)
    return Path(name), bundle.notes


def summary(error: BaseException) -> str:
    return traceback.format_exception_only(error)[0].strip()


def where(error: BaseException) -> list[str]:
    """In which pass and kernel it happened, if in one."""
    return list(getattr(error, "__notes__", []))


def versions() -> dict[str, str]:
    from compiler.isa.table import table_hash
    from compiler.target import chip_names, load_chip

    found = {"tilewright": __version__, "python": platform.python_version(), "system": platform.platform()}
    found["instruction table"] = table_hash()
    found |= {f"chip {name}": load_chip(name).content_hash for name in chip_names()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _report_lines(index: dict[str, Any]) -> Iterator[str]:
    yield f"tilewright {' '.join(index['arguments'])}"
    yield from (index["error"], *index["where"], *index["notes"], "")
    yield from (f"{name}: {version}" for name, version in index["versions"].items())
    yield from ("", index["traceback"])


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name).lstrip(".") or "_"
