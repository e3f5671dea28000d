"""The options that every verb has which compiles a model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from compiler.cli.words import assignments, extent, natural, numbers
from compiler.errors import Problem, UsageError

if TYPE_CHECKING:
    from compiler.options import Options
    from compiler.target import Chip

PRECISIONS = ("fp32", "fp16", "bf16")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "append", "default": []}
    group = parser.add_argument_group("how to compile")
    group.add_argument("--chip", help="the chip: a name, or the path of a .toml file (default: tw1)")
    group.add_argument("--precision", choices=PRECISIONS, help="what float32 becomes (default: it stays)")
    group.add_argument(
        "--shape", dest="shapes", metavar="NAME=NxN...", help="the shape of an input with open dimensions", **many
    )
    group.add_argument("--dim", dest="dims", metavar="NAME=N", help="the size of an open dimension", **many)
    group.add_argument(
        "--value", dest="values", metavar="NAME=N,...", help="an input that is known now, and compiled in", **many
    )
    add_ops_option(group)
    group.add_argument(
        "--require-npu", action="store_true", help="fail, with 5, where an operator cannot run on the chip"
    )
    group.add_argument("--schedule", metavar="FILE", help="run the graph as this file says (compile --dump-schedule)")
    add_tune_option(group)
    group.add_argument("--no-progress", action="store_true", help="draw no progress bar, even on a terminal")


def add_ops_option(parser: Any) -> None:
    parser.add_argument(
        "--ops",
        metavar="FILE",
        action="append",
        default=[],
        help="operators of your own: a .py file, a package or a module; it is run",
    )


def add_tune_option(parser: Any) -> None:
    parser.add_argument(
        "--tune",
        metavar="N",
        type=natural,
        help="try N more tiles for each kernel (default: at most 3); takes longer, and with 0 less time",
    )


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options as keywords of `compiler.compile`."""
    return {
        "chip": args.chip or "tw1",
        "precision": args.precision,
        "shapes": assignments(args.shapes, "--shape", "NxN", _shape),
        "dims": assignments(args.dims, "--dim", "N", extent),
        "values": assignments(args.values, "--value", "N,...", numbers),
        "host_kernels": not args.require_npu,
        "ops": tuple(args.ops),
        "schedule": args.schedule,
        "tune": args.tune,
    }


def driver_options(args: argparse.Namespace) -> tuple[Chip, Options]:
    """The same for `compiler.driver`."""
    from compiler.options import Options
    from compiler.target import load_chip

    given = compile_options(args)
    chip = load_chip(given.pop("chip"))
    return chip, Options(**given)


def refuse_model_options(args: argparse.Namespace, file: str) -> None:
    """An artifact is compiled already."""
    names = {"shapes": "--shape", "dims": "--dim", "values": "--value", "require_npu": "--require-npu"}
    given = [
        names.get(name, f"--{name}")
        for name in MODEL_OPTIONS
        if getattr(args, name) or (name == "tune" and args.tune == 0)
    ]
    if given:
        text = f"{given[0]} has no meaning for {file}, which is compiled already"
        raise UsageError(Problem("TW0002", text))


MODEL_OPTIONS = ("chip", "precision", "shapes", "dims", "values", "require_npu", "ops", "schedule", "tune")


def _shape(text: str) -> tuple[int, ...]:
    return tuple(extent(word) for word in text.replace(",", "x").split("x"))
