"""What a person can ask to see of the passes: every IR between them, their times, a stop, a check of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.errors import Problem, TilewrightError, UsageError
from compiler.pipeline import Observer, kernel_passes

# Checked from the first loop form on, until instructions take the place of loops: in between a CPU can run a kernel.
FIRST_CHECKED, FIRST_UNCHECKED = "lower-blocks", "emit-instructions"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+")
_NAME_LENGTH = 80
_MEBIBYTE = 1 << 20
INDEX = "index.jsonl"


class Miscompiled(TilewrightError):
    """A pass changed what a kernel computes: a bug of that pass."""


@dataclass
class DumpIR:
    """Writes the IR after each pass: one folder per kernel (and one for the graph), one numbered file per pass.

    A kernel that is tried again with less has a folder for each attempt. ``index.jsonl`` says which folder is whose:
    names come from the model, so folders are numbered and hold only what is safe in a path. Files that would be longer
    than ``file_bytes`` are cut, and after ``total_bytes`` nothing more is written; both are noted in place.
    """

    folder: Path
    file_bytes: int = 16 * _MEBIBYTE
    total_bytes: int = 1024 * _MEBIBYTE
    _where: Path = field(init=False, repr=False)
    _count: int = field(default=0, init=False)  # of folders
    _number: int = field(default=0, init=False)  # of the next file in the folder
    _last: Any = field(default=None, init=False, repr=False)
    _text: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.folder.is_dir() and any(self.folder.iterdir()):
            text = f"{self.folder} is not empty, and a dump has a folder of its own"
            raise UsageError(Problem("TW0023", text, hint="name a new folder, or empty this one"))

    def __call__(self, kernel: str, name: str, before: Any, after: Any) -> None:
        if before is not self._last:  # passes hand on what they made: this is another kernel, whatever its name
            self._begin(kernel)
            self._text = before.script()
            self._write("input", self._text)
        text = self._text if after is before else after.script()
        self._write(name, text if text != self._text else "# (unchanged)\n")
        self._last, self._text = after, text

    def _begin(self, kernel: str) -> None:
        cleaned = _NOT_IN_NAMES.sub("_", kernel)[:_NAME_LENGTH]
        self._where = self.folder / f"{self._count:03d}-{cleaned}"
        self._count, self._number = self._count + 1, 0
        if self.total_bytes > 0:
            self._where.mkdir(parents=True)
            with (self.folder / INDEX).open("a", encoding="utf-8") as index:
                index.write(json.dumps({"folder": self._where.name, "kernel": kernel}) + "\n")

    def _write(self, name: str, text: str) -> None:
        if self.total_bytes <= 0:
            return
        content = text.encode(errors="backslashreplace")
        allowed = min(self.file_bytes, self.total_bytes)
        if len(content) > allowed:
            note = "this file is cut" if allowed == self.file_bytes else "the dump is full and ends here"
            content = content[:allowed] + f"\n# ({note})\n".encode()
        (self._where / f"{self._number:02d}-{name}.py").write_bytes(content)
        self._number += 1
        self.total_bytes -= len(content)


@dataclass
class CheckPasses:
    """Runs a kernel before and after each pass on the same random inputs; raises Miscompiled, naming the pass."""

    seed: int = 0
    checked: int = 0

    def __post_init__(self) -> None:
        names = [one.name for one in kernel_passes()]
        self._names = set(names[names.index(FIRST_CHECKED) + 1 : names.index(FIRST_UNCHECKED)])

    def __call__(self, kernel: str, name: str, before: Any, after: Any) -> None:
        if name not in self._names or after is before:
            return
        from compiler.tir_check import differs

        found = differs(before, after, seed=self.seed, ranges=index_ranges(before))
        self.checked += 1
        if found is not None:
            text = f"pass {name} changes what kernel {kernel} computes: {found}"
            hint = f"inputs are drawn from seed {self.seed}; --dump-ir DIR shows the kernel before and after"
            raise Miscompiled(Problem("TW7002", text, hint=hint))


def index_ranges(func: Any) -> Mapping[str, tuple[int, int]]:
    """What integer parameters may be where integers are positions: less than every dimension that data indexes.

    Which of them do is not followed through the stages of a kernel, so all are drawn in that range.
    """
    from tvm import ir

    from compiler.tir.structure import structural_walk

    extents: list[int] = []

    def visit(load: Any) -> None:
        for index, extent in zip(load.indices, load.source.shape, strict=True):
            structural_walk(index, (ir.TensorLoad, lambda _, n=int(extent): extents.append(n)))

    structural_walk(func.body, (ir.TensorLoad, visit))
    integers = [param.name for param in func.params if str(param.dtype).startswith(("int", "uint"))]
    return {name: (0, min(extents)) for name in integers} if extents else {}


def observer(
    *,
    dump_ir: Path | None = None,
    stop_after: str | None = None,
    check_passes: bool = False,
    seed: int = 0,
) -> Observer:
    """An observer that does what was asked for."""
    watchers: list[Any] = []
    if dump_ir is not None:
        watchers.append(DumpIR(dump_ir))
    if check_passes:
        watchers.append(CheckPasses(seed))
    return Observer(watchers, stop_after)


def time_table(seconds: Mapping[str, float]) -> str:
    """Seconds per pass, the slowest first."""
    total = sum(seconds.values())
    lines = [f"{'pass':<24}{'seconds':>9}{'share':>8}"]
    for name, spent in sorted(seconds.items(), key=lambda entry: -entry[1]):
        lines.append(f"{name:<24}{spent:>9.3f}{100 * spent / (total or 1):>7.1f}%")
    lines.append(f"{'all':<24}{total:>9.3f}")
    return "\n".join(lines)
