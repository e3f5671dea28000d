"""How long compiling takes: `python -m ci.bench_compile [--json]`.

Beside `tvm.compile` for CPU of the same model in the same run, cold and with two processes; again with a warm cache;
ResNet-50 as it is served, at batch 64; and stacks of layers that are alike, where the time has to grow with their
number and no faster. Every measurement has a process of its own, with an empty cache where it is cold; what is counted
is from the model's bytes to the compiled model, without the time to import Python modules.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np

PAIRS = {"resnet50": "resnet50-224", "densenet121": "densenet121-224"}
SERVED = "resnet50"
DEPTHS = (50, 500, 2000, 5000)
KINDS = ("straight", "residual")
PROCESSES = 2
MOST_TIMES_TVM = 2.0
MOST_WARM_SECONDS = 2.0
MOST_SERVED_SECONDS = 60.0
GREATEST_EXPONENT = 1.15
CHIP = "tw1"


# ---- models ----------------------------------------------------------------------------------------------------------


def model_bytes(name: str) -> bytes:
    """One of the zoo, DenseNet-121 as in its paper, `served-resnet50`, or a stack `straight-50`, `residual-500`, ..."""
    from dataclasses import replace

    from models import zoo
    from models.feeds import image

    kind, _, size = name.partition("-")
    if kind in KINDS:
        return _stack(int(size), residual=kind == "residual")
    if kind == "served":
        from ci.performance.ladder import SERVED as served

        model = zoo.build(next(each for each in served if each.name == size))
        return bytes(model.SerializeToString(deterministic=True))
    if name == "densenet121-224":
        model = zoo.build(replace(zoo.manifest("densenet121-64"), name=name, inputs=image(224)))
        return bytes(model.SerializeToString(deterministic=True))
    return bytes(zoo.build(name).SerializeToString(deterministic=True))


def _stack(depth: int, *, residual: bool, channels: int = 16, side: int = 8) -> bytes:
    """Convolutions that are alike, each with its own weights; a residual one adds every second time what came in."""
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights = np.random.default_rng(0), [], []
    value = entered = "x"
    for layer in range(depth):
        weight = rng.standard_normal((channels, channels, 3, 3), np.float32) / 12
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]))
        summed = f"c{layer}"
        if residual and layer % 2:
            nodes.append(helper.make_node("Add", [summed, entered], [f"s{layer}"]))
            summed = f"s{layer}"
        value = f"r{layer}"
        nodes.append(helper.make_node("Relu", [summed], [value]))
        entered = value if layer % 2 else entered
    shape = [1, channels, side, side]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", value)]
    graph = helper.make_graph(nodes, "stack", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


# ---- one measurement, in a process of its own ------------------------------------------------------------------------


def _with_tvm(content: bytes) -> Callable[[], object]:
    import onnx
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load_model_from_string(content)
    return lambda: tvm.compile(from_onnx(model), target="llvm")


def _with_tilewright(content: bytes, precision: str | None = None) -> Callable[[], object]:
    from compiler.driver import compile_model
    from compiler.options import Options
    from compiler.target import load_chip

    for name in ("compiler", "passes"):
        for module in walk_packages(import_module(name).__path__, f"{name}."):
            import_module(module.name)
    return lambda: compile_model(content, load_chip(CHIP), Options(precision=precision, jobs=PROCESSES))


COMPILERS: dict[str, Callable[[bytes], Callable[[], object]]] = {
    "tvm": _with_tvm,
    "tilewright": _with_tilewright,
    "tilewright-fp16": partial(_with_tilewright, precision="fp16"),
}


def measure_here(compiler: str, path: Path) -> float:
    compile_it = COMPILERS[compiler](path.read_bytes())
    started = time.perf_counter()
    compile_it()
    return time.perf_counter() - started


def measure(compiler: str, path: Path, cache: Path) -> float:
    command = [sys.executable, "-m", "ci.bench_compile", "--measure", compiler, str(path)]
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(cache), "TVM_NUM_THREADS": str(PROCESSES)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{compiler} cannot compile {path.name}: {done.stderr.strip()[-2000:]}")
    seconds = float(done.stdout.split()[-1])
    print(f"{path.stem} by {compiler}: {seconds:.2f} s", file=sys.stderr)
    return seconds


# ---- the job ---------------------------------------------------------------------------------------------------------


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of the line through the points, both axes logarithmic."""
    return float(np.polyfit([math.log(size) for size in sizes], [math.log(each) for each in seconds], 1)[0])


def beside_tvm(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name, model in PAIRS.items():
        path, cache = folder / f"{name}.onnx", folder / f"cache-{name}"
        path.write_bytes(model_bytes(model))
        tvm = measure("tvm", path, cache)
        cold, warm = (measure("tilewright", path, cache) for _ in range(2))
        rows.append({"model": model, "tvm": tvm, "cold": cold, "times": cold / tvm, "warm": warm})
    return rows


def served(folder: Path) -> dict[str, Any]:
    path = folder / f"served-{SERVED}.onnx"
    path.write_bytes(model_bytes(path.stem))
    return {"model": path.stem, "cold": measure("tilewright-fp16", path, folder / "cache-served")}


def stacks(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for kind in KINDS:
        taken = []
        for depth in DEPTHS:
            path = folder / f"{kind}-{depth}.onnx"
            path.write_bytes(model_bytes(f"{kind}-{depth}"))
            taken.append(measure("tilewright", path, folder / f"cache-{kind}-{depth}"))
        rows.append({"stack": kind, "layers": list(DEPTHS), "seconds": taken, "exponent": exponent([*DEPTHS], taken)})
    return rows


def faults(report: dict[str, Any]) -> list[str]:
    found = []
    for row in report["models"]:
        if row["times"] > MOST_TIMES_TVM:
            found.append(f"{row['model']}: {row['times']:.2f} times as long as TVM; at most {MOST_TIMES_TVM}")
        if row["warm"] > MOST_WARM_SECONDS:
            found.append(f"{row['model']}: {row['warm']:.2f} s with a warm cache; at most {MOST_WARM_SECONDS}")
    for row in report["served"]:
        if row["cold"] > MOST_SERVED_SECONDS:
            found.append(f"{row['model']}: {row['cold']:.1f} s; at most {MOST_SERVED_SECONDS:.0f} s")
    for row in report["stacks"]:
        if row["exponent"] > GREATEST_EXPONENT:
            found.append(f"{row['stack']} stacks: exponent {row['exponent']:.2f}; at most {GREATEST_EXPONENT}")
    return found


def table(report: dict[str, Any]) -> str:
    lines = [f"{'':18}{'tvm.compile':>13}{'cold':>9}{'ratio':>8}{'warm':>9}"]
    for row in report["models"]:
        lines.append(
            f"{row['model']:<18}{row['tvm']:>11.1f} s{row['cold']:>7.1f} s{row['times']:>8.2f}{row['warm']:>7.2f} s"
        )
    lines += [f"{row['model']:<18}{'':>13}{row['cold']:>7.1f} s" for row in report["served"]]
    lines += ["", f"{'layers':<18}" + "".join(f"{depth:>9}" for depth in DEPTHS) + f"{'exponent':>11}"]
    for row in report["stacks"]:
        lines.append(
            f"{row['stack']:<18}" + "".join(f"{each:>7.2f} s" for each in row["seconds"]) + f"{row['exponent']:>11.2f}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.bench_compile", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--only", choices=("models", "served", "stacks"), help="one of the tables")
    parser.add_argument("--measure", nargs=2, metavar=("COMPILER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(measure_here(options.measure[0], Path(options.measure[1])))
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        report = {
            "models": beside_tvm(folder) if options.only in (None, "models") else [],
            "served": [served(folder)] if options.only in (None, "served") else [],
            "stacks": stacks(folder) if options.only in (None, "stacks") else [],
        }
    print(json.dumps(report, indent=1) if options.json else table(report))
    for fault in (found := faults(report)):
        print(f"FAILED: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
