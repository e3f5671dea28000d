"""``tilewright run``: run a compiled model on the emulated chip; an ONNX model is compiled first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.model_inputs import array_inputs
from compiler.cli.model_options import add_model_options, compile_options, refuse_model_options
from compiler.cli.progress import compile_shown
from compiler.cli.simulator import announce_simulator
from compiler.cli.words import assignments, files_read, natural, refuse_same_files
from compiler.errors import Problem, UsageError
from compiler.report.tables import columns, described, printable, some

if TYPE_CHECKING:
    import numpy as np

    from compiler.runtime.loaded import LoadedModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("file", metavar="FILE", help="an artifact, or an .onnx file to compile first")
    data = parser.add_argument_group("data")
    data.add_argument("--input", dest="inputs", metavar="NAME=FILE", help="the array for an input, a .npy file", **many)
    data.add_argument("--random-inputs", metavar="SEED", type=natural, help="random arrays for all other inputs")
    data.add_argument(
        "--output", dest="outputs", metavar="NAME=FILE", help="where to write an output, as a .npy file", **many
    )
    how = parser.add_argument_group("how to run")
    how.add_argument("--hazards", action="store_true", help="look for races; with any, list them and exit with 9")
    how.add_argument("--no-host", action="store_true", help="refuse artifacts that hold code for the host")
    how.add_argument("--profile", action="store_true", help="list the cycles of every kernel")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    given, written = assignments(args.inputs, "--input"), assignments(args.outputs, "--output")
    refuse_same_files({f"--output {name}": path for name, path in written.items()}, files_read(args))
    model = _load(args)
    unknown = next((name for name in written if name not in {port.name for port in model.outputs}), None)
    if unknown is not None:
        from compiler.runtime.ports import listed

        raise UsageError(Problem("TW1556", f"the model has no output {unknown}", hint=listed(model.outputs, "outputs")))
    inputs = array_inputs(model, given, args.random_inputs)
    outputs = model.run(inputs, hazards=args.hazards, profile=args.profile or args.json)
    from compiler.artifact import arrays

    for name, path in written.items():
        arrays.write(path, outputs[name])
    if args.json:
        print_json("run", _content(args, model, outputs))
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(args, model, outputs, written))
    return 0


def _load(args: argparse.Namespace) -> LoadedModel:
    from compiler.api import load

    announce_simulator()
    if Path(args.file).suffix == ".onnx":
        options = compile_options(args)
        return load(compile_shown(args, args.file, options), host_kernels=not args.no_host)
    refuse_model_options(args, args.file)
    return load(Path(args.file), host_kernels=not args.no_host)


def _content(args: argparse.Namespace, model: LoadedModel, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {
        "model": model.model.name,
        "chip": model.model.chip.name,
        "cycles": model.cycles,
        "seconds_on_chip": model.cycles / (model.model.chip.clock_mhz * 1e6),
        "statistics": [stats.to_dict() for stats in model.statistics],
        "kernel_cycles": [
            {"kernel": k.kernel, "nodes": k.nodes, "cycles": k.cycles, "program": k.program}
            for k in model.kernel_cycles
        ],
        "hazards": [problem.render() for problem in model.hazards] if args.hazards else None,
        "outputs": described(outputs),
    }


def _lines(
    args: argparse.Namespace, model: LoadedModel, outputs: Mapping[str, np.ndarray], written: Mapping[str, str]
) -> Iterator[str]:
    from compiler.sim.statistics import table

    for number, stats in enumerate(model.statistics):
        if len(model.statistics) > 1:
            yield f"program {number} of {len(model.statistics)}"
        yield from table(stats).splitlines()
    if args.profile and model.kernel_cycles:
        yield ""
        rows = [("kernel", "cycles", "nodes")]
        rows += [(k.kernel, f"{k.cycles:,}", some(k.nodes)) for k in model.kernel_cycles]
        yield from columns(rows)
    if args.hazards:
        yield "hazards: none"
    for name, one in described(outputs).items():
        shape = "x".join(map(str, one["shape"])) or "scalar"
        where = f" -> {written[name]}" if name in written else ""
        yield f"output {name}: {one['dtype']} {shape}, sha256 {one['sha256'][:16]}{where}"
