"""``tilewright doctor``: is everything there that the command needs? The answer is meant to be pasted into an issue."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from compiler.cli.answer import print_json
from compiler.errors import TilewrightError, UnsupportedError
from compiler.report.tables import columns, printable, size_text

REQUIRED = ("numpy", "ml_dtypes", "numba", "threadpoolctl", "apache-tvm", "onnx")
OPTIONAL = {"onnxruntime": "`tilewright verify` needs it"}
LEAST_FREE_BYTES = 1 << 30
PYTHON = (3, 11)


@dataclass(frozen=True)
class Check:
    what: str
    found: str
    fault: str = ""  # empty where all is well
    is_needed: bool = True

    @property
    def verdict(self) -> str:
        if not self.fault:
            return "ok"
        return f"{'FAULT' if self.is_needed else 'note'}: {self.fault}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes no options of its own."""


def run(args: argparse.Namespace) -> int:
    checks = [
        check for section in (_system, _packages, _tvm, _patches, _simulator, _chips) for check in _guarded(section)
    ]
    is_well = not any(check.fault and check.is_needed for check in checks)
    if args.json:
        print_json("doctor", {"well": is_well, "checks": [asdict(check) for check in checks]})
    else:
        rows = [("what", "found", "verdict"), *((c.what, c.found, c.verdict) for c in checks)]
        sys.stdout.writelines(f"{printable(line)}\n" for line in columns(rows, numbers=False))
    return 0 if is_well else UnsupportedError.exit_code


def _guarded(section: Callable[[], Iterator[Check]]) -> list[Check]:
    """A check that breaks down is a finding, not the end."""
    try:
        return list(section())
    except Exception as error:  # noqa: BLE001  what is broken can break in any way
        reason = str(error).partition("\n")[0][:200]
        return [Check(section.__name__.strip("_"), "-", f"{type(error).__name__}: {reason}")]


def _system() -> Iterator[Check]:
    from compiler import __version__
    from compiler.isa.table import table_hash

    yield Check("tilewright", f"{__version__}, instruction table {table_hash()[:16]}")
    is_new = sys.version_info[:2] >= PYTHON
    yield Check("python", platform.python_version(), "" if is_new else "Python 3.11 or newer is needed")
    yield Check("system", platform.platform())
    where = tempfile.gettempdir()
    free = shutil.disk_usage(where).free
    fault = "" if free >= LEAST_FREE_BYTES else f"less than {size_text(LEAST_FREE_BYTES)} are free"
    yield Check("disk", f"{size_text(free)} free in {where}", fault)


def _packages() -> Iterator[Check]:
    for name in (*REQUIRED, *OPTIONAL):
        try:
            yield Check(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            why = OPTIONAL.get(name, "`pip install tilewright` installs it")
            yield Check(name, "-", f"is not installed; {why}", name in REQUIRED)


def _tvm() -> Iterator[Check]:
    import tvm
    from tvm import te, tirx

    from compiler.runtime.host import HostFunction, to_json
    from compiler.runtime.model import HostSegment

    x = te.placeholder((4,), "float32", "x")
    function = to_json(te.create_prim_func([x, te.compute((4,), lambda i: x[i] + tirx.const(1, "float32"), "y")]))
    HostFunction(HostSegment("trial", "", function, ("x", "y"), ("y",))).set_up()
    yield Check("tvm build", f"{tvm.__version__}, LLVM {tvm.support.libinfo().get('LLVM_VERSION', 'unknown')}")


def _patches() -> Iterator[Check]:
    from patches import PATCHES, load

    for name in PATCHES:
        patch = load(name)
        misfit = patch.misfit()
        yield Check(f"patch {name}", "-" if misfit else "fits, and is put in place where TVM is used", misfit)


def _simulator() -> Iterator[Check]:
    from compiler.isa.jit import compiled_before

    state = "compiled" if compiled_before() else "is compiled when it is needed first; this takes some 20 seconds"
    yield Check("simulator", state)


def _chips() -> Iterator[Check]:
    from compiler.target import chip_names, load_chip

    for name in chip_names():
        try:
            yield Check(f"chip {name}", f"content hash {load_chip(name).content_hash[:16]}")
        except TilewrightError as error:
            yield Check(f"chip {name}", "-", error.problems[0].message)
