"""What a person can ask to see of the passes: every IR between them, their times, a stop, a check of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.errors import Problem, TilewrightError
from compiler.pipeline import Observer, kernel_passes

# Checked from the first loop form on, until instructions take the place of loops: in between a CPU can run a kernel.
FIRST_CHECKED, FIRST_UNCHECKED = "lower-blocks", "emit-instructions"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+")
_NAME_LENGTH = 80


class Miscompiled(TilewrightError):
    """A pass changed what a kernel computes: a bug of that pass."""


@dataclass
class DumpIR:
    """Writes the IR after each pass: one folder per kernel (and one for the graph), one numbered file per pass."""

    folder: Path
    _numbers: dict[str, int] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)

    def __call__(self, kernel: str, name: str, before: Any, after: Any) -> None:
        where = self.folder / (_NOT_IN_NAMES.sub("_", kernel)[:_NAME_LENGTH] or "graph")
        where.mkdir(parents=True, exist_ok=True)
        number = self._numbers.get(kernel, 0)
        text = after.script()
        if number == 0:
            self._write(where, 0, "input", before.script())
        changed = text != (self._texts.get(kernel) if number else before.script())
        self._write(where, number + 1, name, text if changed else "# (unchanged)\n")
        self._numbers[kernel], self._texts[kernel] = number + 1, text

    def _write(self, where: Path, number: int, name: str, text: str) -> None:
        (where / f"{number:02d}-{name}.py").write_text(text, encoding="utf-8")


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
    """For each parameter whose elements are indices, what they may be: from the dimension that they index."""
    from tvm import ir
    from tvm_ffi import structural_walk

    limits = dict[str, int]()
    parameters = {param.name for param in func.params}

    def visit(load: Any) -> None:
        for index, extent in zip(load.indices, load.source.shape, strict=True):
            structural_walk(index, (ir.TensorLoad, lambda inner, n=int(extent): note(inner.source.name, n)))

    def note(name: str, extent: int) -> None:
        for param in parameters:
            if name == param or name.startswith(f"{param}_"):  # a copy in UB is named after its parameter
                limits[param] = min(limits.get(param, extent), extent)

    structural_walk(func.body, (ir.TensorLoad, visit))
    return {name: (0, extent) for name, extent in limits.items()}


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
