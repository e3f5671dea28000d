"""``tilewright profile``: where the cycles of a model go, layer by layer, and what could be done about it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.model_inputs import array_inputs
from compiler.cli.model_options import add_model_options, compile_options, refuse_model_options
from compiler.cli.progress import compile_shown
from compiler.cli.words import assignments, files_read, natural, refuse_same_files
from compiler.errors import Problem, UsageError
from compiler.report.tables import printable

if TYPE_CHECKING:
    from compiler.report.compilation import Report
    from compiler.report.model_bounds import ModelWork
    from compiler.report.profile import Profile
    from compiler.runtime.loaded import LoadedModel

TOP, SORTS = 15, ("cycles", "ratio", "lost", "order", "ddr", "conflicts", "name")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "docs/profile.md explains the figures, and the keys of --json."
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("file", metavar="FILE", help="an .onnx file, which is compiled first, or an artifact")
    data = parser.add_argument_group("data", "only where what a program does depends on its data; it is then run")
    data.add_argument("--input", dest="inputs", metavar="NAME=FILE", help="the array for an input, a .npy file", **many)
    data.add_argument("--random-inputs", metavar="SEED", type=natural, help="random arrays for all other inputs")
    data.add_argument("--onnx", metavar="FILE", help="of an artifact, the model it was compiled from: for lower bounds")
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--top", type=natural, default=TOP, metavar="N", help=f"so many layers (default {TOP}; 0: all)")
    shown.add_argument("--sort", choices=SORTS, default="cycles", help="the order of layers (default: cycles)")
    shown.add_argument("--details", action="store_true", help="every queue of every layer that is shown, and its tile")
    written = parser.add_argument_group("what is written")
    written.add_argument("--html", metavar="FILE", help="a report with pictures, in one file")
    written.add_argument("--timeline", metavar="FILE", help="the timeline of the report alone, as SVG")
    written.add_argument("--core", type=natural, metavar="N", help="whose timeline it shows (default: the busiest)")
    written.add_argument(
        "--trace", metavar="FILE", help="a timeline for ui.perfetto.dev; of several programs, a file each"
    )
    written.add_argument("--overlay", metavar="FILE", help="figures by ONNX node, as JSON for viewers of graphs")
    written.add_argument("--flame", metavar="FILE", help="DDR traffic as folded stacks, for flame graph tools")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    from compiler.report import profile_text
    from compiler.report.traffic import folded

    pictures = {f"--{name}": getattr(args, name) for name in ("html", "timeline", "trace", "overlay", "flame")}
    refuse_same_files(pictures, files_read(args))
    if args.core is not None and not (args.html or args.timeline):
        raise UsageError(Problem("TW0002", "--core is for a timeline: give --html or --timeline, too"))
    found = _profiled(args)
    if args.core is not None and args.core >= found.cores:
        text = f"--core {args.core}: the program runs on cores 0 to {found.cores - 1}"
        raise UsageError(Problem("TW0002", text))
    if args.html:
        from compiler.report.page.page import page

        _write(args.html, "the report", [page(found, args.core)])
    if args.timeline:
        from compiler.report.page.page import timeline_alone

        _write(args.timeline, "the timeline", [timeline_alone(found, args.core), "\n"])
    if args.trace:
        _write_traces(found, Path(args.trace))
    if args.overlay:
        _write_overlay(found, args)
    if args.flame:
        _write(args.flame, "the flame graph", (f"{line}\n" for line in folded(found.traffic)))
    if args.json:
        print_json("profile", found.to_dict())
    else:
        sys.stdout.writelines(
            f"{printable(line)}\n" for line in profile_text.lines(found, args.top, args.sort, args.details)
        )
    return 0


def _profiled(args: argparse.Namespace) -> Profile:
    from compiler.report.profile import profile

    loaded, work, report = _loaded(args)
    files, seed = assignments(args.inputs, "--input"), args.random_inputs
    runs = None if files or seed is not None else loaded.timed()
    if runs is None:
        if not files and seed is None:
            print("note: what the program does depends on its data: --random-inputs 0", file=sys.stderr)
            seed = 0
        inputs = array_inputs(loaded, files, seed)
        runs = loaded.timed(inputs)
        if runs is None:
            loaded.run(inputs)
    return profile(loaded, runs, work, report)


def _loaded(args: argparse.Namespace) -> tuple[LoadedModel, ModelWork | None, Report | None]:
    from compiler.api import load

    if Path(args.file).suffix == ".onnx":
        if args.onnx:
            raise UsageError(Problem("TW0002", f"--onnx has no meaning for {args.file}, which is one"))
        options = compile_options(args)
        artifact = compile_shown(args, args.file, options)
        work = _work(args.file, options["precision"], options["shapes"], options["dims"], values=options["values"])
        return load(artifact), work, artifact.report
    refuse_model_options(args, args.file)
    loaded = load(Path(args.file))
    if not args.onnx:
        return loaded, None, None
    precision = str(loaded.model.options.get("precision") or "") or None
    shapes = {port.name: port.shape for port in loaded.inputs}
    return loaded, _work(args.onnx, precision, shapes, {}, loaded.model.source_sha256), None


def _work(file: str, precision: str | None, shapes: Any, dims: Any, sha256: str = "", values: Any = None) -> ModelWork:
    from compiler.frontend import load_model
    from compiler.frontend.known_inputs import with_known
    from compiler.report.model_bounds import ModelWork

    model = load_model(file)
    if sha256 not in ("", model.source_sha256):
        text = f"the artifact was compiled from another model than {file}"
        raise UsageError(Problem("TW0030", text, hint="bounds hold for the model that they are computed from"))
    return ModelWork(with_known(model, values or {}), precision, shapes, dims)


def _write_overlay(found: Profile, args: argparse.Namespace) -> None:
    from compiler.report.overlay import overlay

    source = args.file if Path(args.file).suffix == ".onnx" else args.onnx
    content = overlay(found, _node_names(source) if source else ())
    _write(args.overlay, "the overlay", [json.dumps(content, indent=1), "\n"])


def _node_names(file: str) -> list[str]:
    from compiler.frontend import load_model
    from compiler.frontend.naming import node_name

    model: Any = load_model(file).proto
    return [node_name(node) for node in model.graph.node]


def _write_traces(found: Profile, path: Path) -> None:
    from compiler.runtime.kernel_cycles import plain_name
    from compiler.sim.trace import save_trace

    nodes = dict(found.model.kernels)
    for number, run in enumerate(found.runs):
        named = {label: nodes.get(plain_name(label), ()) for label, _ in run.program.labels}
        file = path if number == 0 else path.with_name(f"{path.stem}.{number}{path.suffix}")
        if note := save_trace(run, file, named).note:
            print(f"note: {note}", file=sys.stderr)


def _write(path: str, what: str, lines: Iterable[str]) -> None:
    from compiler.artifact.files import write_atomically

    write_atomically(path, lambda file: file.writelines(line.encode() for line in lines), what)
