"""What each TIR pass is for: `python -m ci.pass_table` compiles kernels with the pass and without it.

The distinct kernels of models of the zoo, and random ones, are compiled with all passes, then with one named pass left
out wherever it stands in the pipeline. Statements are counted by what does them: the vector unit, a copy between
memories, the cube unit, or the scalar unit, element by element; and how often one core meets them, loops around them
counted: a pass that lets one instruction do the work of many matters, too. A kernel that does not compile without the
pass counts as such, and all of its statements as lost. A pass that makes no difference in any table is an error.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from ci.random_kernels import Generator
from compiler.driver import plan
from compiler.errors import TilewrightError, UsageError
from compiler.kernel_pool import Job, in_processes, processes_for
from compiler.kernels import NoRoadLeft, compile_kernel
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.pipeline import Observer, check_name
from compiler.target import Chip, load_chip
from compiler.tir.rewriter import Rewriter
from models import zoo

PASSES = ("pre-process", "if-promotion", "loop-shift", "loop-collapse", "loop-partition", "loop-fission", "loop-split")
MODELS = ("mlp-256", "digits-cnn", "resnet-block-16", "lstm-16", "unet-resize-64", "yolo-128", "gpt2-64")
KINDS = ("vector", "copy", "cube", "scalar")
ALL = "all passes"
MAX_REASON = 160
UNBOUNDED = 1 << 24
LEGEND = """\
Statements by what does them; *lost* are those of kernels that do not compile without the pass. *executed*: how often
one core meets the statements of the kernels that compile, and as a multiple of that with all passes.
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel: its statements by kind and how often they are met, or the reason why there is none."""

    statements: Counter[str] = field(default_factory=Counter)
    executed: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Kernel:
    """A kernel, and what it is with all passes."""

    job: Job
    whole: Outcome


@dataclass
class Row:
    """What all kernels are without one pass; ``lost`` are the statements of those that do not compile."""

    name: str
    statements: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    faults: list[str] = field(default_factory=list)
    executed: int = 0
    executed_with_all: int = 0  # of the kernels that compile without the pass

    @property
    def emitted_share(self) -> float:
        emitted = self.statements.total() - self.statements["scalar"]
        return emitted / ((self.statements.total() + self.lost) or 1)

    @property
    def growth(self) -> float:
        return self.executed / (self.executed_with_all or 1)

    def add(self, kernel: Kernel, outcome: Outcome) -> None:
        if outcome.fault:
            self.lost += kernel.whole.statements.total()
            self.faults.append(outcome.fault)
        else:
            self.statements += outcome.statements
            self.executed += outcome.executed
            self.executed_with_all += kernel.whole.executed


def model_kernels(name: str, chip: Chip) -> ModelKernels:
    shapes = {each.name: each.shape for each in zoo.manifest(name).inputs if each.symbols}
    return plan(zoo.build(name).SerializeToString(), chip, Options(shapes=shapes, cache=False), Observer())


def distinct_kernels(names: Iterable[str], chip: Chip) -> list[Kernel]:
    """The kernels of all models, each once, with all passes; of groups that do not fit, as in the driver, the parts."""
    found: dict[Any, Kernel] = {}
    for name in names:
        model = model_kernels(name, chip)
        waiting, seen = model.uses(), set[Any]()
        while waiting:
            use = waiting.pop(0)
            key = use.key
            if key in found or key in seen:
                continue
            seen.add(key)
            outcome = compiled(use.job, chip)
            if outcome.fault and use.group is not None:
                waiting += model.apart(use)
            else:
                found[key] = Kernel(use.job, outcome)
    return list(found.values())


def random_kernels(count: int, chip: Chip) -> list[Kernel]:
    """The first kernels of `ci.random_kernels`: guards, odd extents and quotients that no model of the zoo has."""
    found = []
    for seed in range(count):
        job = Job(*Generator(seed).kernel(), f"seed{seed}")
        found.append(Kernel(job, compiled(job, chip)))
    return found


def compiled(job: Job, chip: Chip, without: str = "") -> Outcome:
    """One kernel with all passes but one; its tile is that of least analytical cost, the same with any passes."""
    executed = 0

    def watch(kernel: str, name: str, before: Any, after: Any) -> None:
        nonlocal executed
        if name == "emit-instructions":
            executed = executed_statements(after)

    observer = Observer([watch], without=frozenset({"learned-ranking", without} - {""}))
    try:
        kernel = compile_kernel(job.func, job.schedule, chip, observer, job.name)
    except NoRoadLeft as error:
        return Outcome(fault=error.roads[-1].why if error.roads else str(error))
    except TilewrightError as error:
        return Outcome(fault=error.problems[0].message)
    except Exception as error:  # noqa: BLE001  passes may rely on facts that nobody establishes now
        return Outcome(fault=f"{type(error).__name__}: {error}")
    return Outcome(Counter(kernel.statistics), executed)


def executed_statements(func: Any) -> int:
    """How many instructions and scalar stores one core executes in instruction form.

    Of an extent that varies the most is taken; a loop that data bounds (NonMaxSuppression's) counts as one iteration.
    """
    counting = _Executed()
    counting.function(func)
    return counting.count


class _Executed(Rewriter):
    """Changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self._trips = 0, 1

    def loop(self, loop: tirx.For) -> Any:
        outside = self._trips
        most = self.analyzer.const_int_bound(loop.extent).max_value
        self._trips *= max(0, most) if most < UNBOUNDED else 1
        super().loop(loop)
        self._trips = outside
        return loop

    def store(self, store: tirx.BufferStore) -> Any:
        self.count += self._trips
        return store

    def other(self, stmt: Any) -> Any:
        if isinstance(stmt, tirx.AttrStmt):
            return self.attribute(stmt)
        self.count += self._trips * isinstance(stmt, tirx.Evaluate)
        return stmt


def rows(kernels: Sequence[Kernel], chip: Chip, passes: Iterable[str] = PASSES) -> Iterator[Row]:
    """All passes first, then each one left out."""
    first = Row(ALL)
    for kernel in kernels:
        first.add(kernel, kernel.whole)
    yield first
    names = list(passes)

    def left_out(number: int) -> Row:
        row = Row(names[number])
        for kernel in kernels:
            row.add(kernel, compiled(kernel.job, chip, row.name))
        return row

    yield from in_processes(left_out, len(names), processes_for(len(names), None), "left a pass out")


def differs(row: Row, first: Row) -> bool:
    return (row.statements, len(row.faults), row.executed) != (first.statements, len(first.faults), first.executed)


def header() -> Iterator[str]:
    yield "| | vector | copy | cube | scalar | lost | kernels not compiled | done by instructions | executed |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"


def line(row: Row) -> str:
    counts = [str(row.statements[kind]) for kind in KINDS]
    cells = [
        row.name if row.name == ALL else f"without {row.name}",
        *counts,
        str(row.lost),
        str(len(row.faults)),
        f"{100 * row.emitted_share:.1f} %",
    ]
    return f"| {' | '.join([*cells, f'{row.executed:,} (x {row.growth:.2f})'])} |"


def reasons(row: Row) -> Iterator[str]:
    """The commonest reasons why kernels do not compile without the pass."""
    first_lines = Counter(fault.partition("\n")[0][:MAX_REASON] for fault in row.faults)
    for reason, count in first_lines.most_common(2):
        yield f"- {row.name}, {count} kernels not compiled: {reason}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--models", default=",".join(MODELS), help="names of the zoo (default: %(default)s)")
    which.add_argument("--all", action="store_true", help="all models of the zoo")
    parser.add_argument(
        "--random", metavar="N", type=int, default=60, help="and N random kernels (default: %(default)s)"
    )
    parser.add_argument("--passes", default=",".join(PASSES), help="passes to leave out (default: %(default)s)")
    parser.add_argument("--chip", default="tw1")
    options = parser.parse_args(arguments)
    names = zoo.names() if options.all else tuple(filter(None, options.models.split(",")))
    passes = tuple(options.passes.split(","))
    try:
        chip = load_chip(options.chip)
        for name in passes:
            check_name(name)
        tables = {
            f"distinct kernels of {', '.join(names)}": distinct_kernels(names, chip),
            f"random kernels, seeds 0 to {options.random - 1}": random_kernels(options.random, chip),
        }
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    idle = set(passes)
    for title, kernels in tables.items():
        if kernels:
            idle -= {row.name for row in printed(f"{len(kernels)} {title}, on {chip.name}", kernels, chip, passes)}
    print(LEGEND)
    if idle:
        print(f"not shown to matter: {', '.join(name for name in passes if name in idle)}")
    return 1 if idle else 0


def printed(title: str, kernels: Sequence[Kernel], chip: Chip, passes: Iterable[str]) -> list[Row]:
    """Print a table; the rows of the passes that matter in it."""
    print(f"{title}:\n\n" + "\n".join(header()), flush=True)
    found = []
    for row in rows(kernels, chip, passes):
        print(line(row), flush=True)
        found.append(row)
    print("\n" + "".join(f"{text}\n" for row in found for text in reasons(row)))
    return [row for row in found[1:] if differs(row, found[0])]


if __name__ == "__main__":
    sys.exit(main())
