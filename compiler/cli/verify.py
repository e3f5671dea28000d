"""``tilewright verify``: does the compiled model compute what onnxruntime computes, and if not, from which node on?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.model_inputs import array_inputs
from compiler.cli.model_options import add_model_options, compile_options
from compiler.cli.progress import compile_shown
from compiler.cli.words import assignments, natural
from compiler.errors import DifferentError
from compiler.report.tables import columns, printable, shape_text

if TYPE_CHECKING:
    import numpy as np

    from compiler.report.comparison import Comparison, Tolerance
    from compiler.runtime.loaded import LoadedModel

RTOL, ATOL, HALF_COSINE = 1e-3, 1e-4, 0.999


def add_arguments(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("model", metavar="MODEL", help="the model, an .onnx file")
    parser.add_argument("--layers", action="store_true", help="compare the output of every node, and name the first")
    parser.add_argument("--rtol", type=_tolerance, help=f"relative tolerance (default: {RTOL}; see --atol)")
    parser.add_argument(
        "--atol",
        type=_tolerance,
        help=f"absolute tolerance (default: {ATOL}; of 16 bits or quantised, where neither is given, a result is right "
        f"too that is as near as another one of its length whose cosine with it is {HALF_COSINE}, or within one step)",
    )
    parser.add_argument(
        "--input", dest="inputs", metavar="NAME=FILE", help="the array for an input, a .npy file", **many
    )
    parser.add_argument(
        "--random-inputs", metavar="SEED", type=natural, default=0, help="of all other inputs (default: 0)"
    )
    add_model_options(parser)


def _tolerance(word: str) -> float:
    try:
        value = float(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is not a number") from error
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is not a tolerance")
    return value


def run(args: argparse.Namespace) -> int:
    options, files = compile_options(args), assignments(args.inputs, "--input")
    from dataclasses import replace

    from compiler.api import load
    from compiler.frontend.known_inputs import with_known
    from compiler.frontend.load import load_model, with_data_inside
    from compiler.frontend.types import largest_float
    from compiler.operators import load_operators
    from compiler.report.comparison import Tolerance
    from compiler.report.reference import has_halves, quantises, reference_of, with_every_output

    load_operators(options["ops"])
    whole = load_model(args.model)
    model: Any = with_known(replace(whole, proto=with_data_inside(whole)), options["values"])
    if args.layers:
        model = with_every_output(model, options["shapes"], options["dims"])
    name, reference = reference_of(model)
    if args.layers:
        options["values"] = {}  # they are in the model
    loaded = load(compile_shown(args, model if args.layers else args.model, options))
    inputs = array_inputs(loaded, files, args.random_inputs)
    rounds = args.precision in ("fp16", "bf16") or has_halves(model) or quantises(model)
    is_given = args.rtol is not None or args.atol is not None
    rtol, atol = (RTOL if args.rtol is None else args.rtol), (ATOL if args.atol is None else args.atol)
    tolerance = Tolerance(rtol, atol, HALF_COSINE, steps=1) if rounds and not is_given else Tolerance(rtol, atol)
    tolerance = replace(tolerance, largest=largest_float(args.precision))
    nodes = {name: node for node in model.graph.node for name in node.output if name}
    found = _compared(loaded, reference.run(inputs), inputs, tolerance, nodes)
    if args.layers:
        order = {name: index for index, name in enumerate(nodes)}
        found.sort(key=lambda one: order.get(one.name, len(order)))
    first = next((one for one in found if one.fault), None)
    culprit = _node_text(nodes.get(first.name)) if first is not None else ""
    if args.json:
        print_json("verify", _content(args, loaded, found, first, culprit))
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(args, loaded, found, first, culprit, name))
    return DifferentError.exit_code if first is not None else 0


def _compared(
    loaded: LoadedModel,
    expected: dict[str, np.ndarray],
    inputs: dict[str, np.ndarray],
    tolerance: Tolerance,
    nodes: dict[str, Any],
) -> list[Comparison]:
    from dataclasses import replace

    from compiler.report.comparison import compare
    from compiler.report.reference import counts_steps

    exact, found = replace(tolerance, steps=0), []
    for name, array in loaded.run(inputs, hazards=True).items():
        own = tolerance if counts_steps(expected[name].dtype, nodes.get(name)) else exact
        found.append(compare(name, expected[name], array, own))
    return found


def _node_text(node: Any) -> str:
    if node is None:
        return "no node: an input or constant"
    return f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type} (it has no name)"


def _content(
    args: argparse.Namespace,
    loaded: LoadedModel,
    found: Sequence[Comparison],
    first: Comparison | None,
    culprit: str,
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "model": args.model,
        "chip": loaded.model.chip.name,
        "right": first is None,
        "first_wrong": None if first is None else {"output": first.name, "node": culprit, "fault": first.fault},
        "tensors": [asdict(one) for one in found],
        "cycles": loaded.cycles,
    }


def _lines(
    args: argparse.Namespace,
    loaded: LoadedModel,
    found: Sequence[Comparison],
    first: Comparison | None,
    culprit: str,
    reference: str,
) -> Iterator[str]:
    rows = [("tensor", "shape", "largest error", "cosine", "outside", "")]
    for one in found:
        verdict = "WRONG" if one.fault else "right"
        cosine = f"{one.cosine:.6f}"
        rows.append((one.name, shape_text(one.shape), f"{one.max_error:.3g}", cosine, f"{one.wrong:,}", verdict))
    yield from columns(rows)
    yield ""
    where = f"{Path(args.model).name} on {loaded.model.chip.name}"
    if first is None:
        yield f"{where}: equal to {reference} on these inputs, free of hazards, {loaded.cycles:,} cycles"
        return
    what = "the first node that diverges" if args.layers else "wrong"
    yield f"{where}: {what}: {first.name}, the output of {culprit}: {first.fault}"
    if not args.layers:
        yield "next: --layers names the first node that diverges"
