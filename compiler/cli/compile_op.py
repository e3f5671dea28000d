"""``tilewright compile-op``: one operator as an artifact of its own."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from compiler.cli.answer import print_json
from compiler.cli.model_options import add_ops_option, add_tune_option
from compiler.cli.words import assignments, files_read, refuse_same_files
from compiler.errors import Problem, UsageError
from compiler.report.tables import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("name", metavar="NAME", help="the operator: domain::Name, or ONNX's own name")
    parser.add_argument(
        "--input",
        dest="inputs",
        metavar="NAME=TYPE",
        help="an input, as x=float32[37,53]; in the order of the function",
        **many,
    )
    parser.add_argument(
        "--constant", dest="constants", metavar="NAME=N,...", help="an input that is known now, as axes=0,1", **many
    )
    parser.add_argument(
        "--attribute", dest="attributes", metavar="NAME=VALUE", help="as alpha=0.5, axes=0,1 or mode=tanh", **many
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="the artifact (default: NAME.twm)")
    parser.add_argument("--chip", default="tw1", help="the chip: a name, or the path of a .toml file (default: tw1)")
    parser.add_argument("--require-npu", action="store_true", help="fail, with 5, where it cannot run on the chip")
    add_ops_option(parser)
    add_tune_option(parser)


def run(args: argparse.Namespace) -> int:
    types = assignments(args.inputs, "--input", "TYPE")
    constants = assignments(args.constants, "--constant", "N,...", _numbers)
    words = assignments(args.attributes, "--attribute", "VALUE")
    if both := sorted(types.keys() & constants.keys()):
        raise UsageError(Problem("TW0002", f"--input {both[0]} and --constant {both[0]} exclude each other"))
    from compiler.api import compile_operator
    from compiler.operators import load_operators
    from compiler.single_operator import operator_called

    load_operators(args.ops)
    declared = operator_called(args.name)
    output = Path(args.output or f"{declared.name}.twm")
    refuse_same_files({"-o": output}, files_read(args))
    attributes = {name: _value(declared.signature.attributes.get(name), text) for name, text in words.items()}
    artifact = compile_operator(
        args.name,
        {**types, **constants},
        args.chip,
        attributes=attributes,
        host_kernels=not args.require_npu,
        tune=args.tune,
    )
    artifact.save(output)
    if args.json:
        print_json("compile-op", {"artifact": str(output), "bytes": output.stat().st_size, **artifact.report.to_dict()})
        return 0
    from compiler.report.text import kernel_lines

    sys.stdout.writelines(f"{printable(line)}\n" for line in kernel_lines(artifact.report))
    print(f"wrote {printable(str(output))}, {output.stat().st_size:,} bytes")
    return 0


def _numbers(text: str) -> Any:
    """Whole numbers are int64, as in ONNX, others float32."""
    import numpy as np

    values = [float(word) for word in text.split(",")]
    whole = all(re.fullmatch(r"\s*[+-]?\d+\s*", word) for word in text.split(","))
    return np.array(values, np.int64 if whole else np.float32)


def _value(attribute: Any, text: str) -> Any:
    """A word as the attribute's own type; what does not fit stays a text, which the operator refuses."""
    import typing

    hint = attribute.hint if attribute is not None else str
    members = typing.get_args(hint)
    if members:
        return [_scalar(members[0], word.strip()) for word in text.split(",")]
    return _scalar(hint, text)


def _scalar(kind: Any, word: str) -> Any:
    if kind is bool:
        return {"true": True, "false": False, "1": True, "0": False}.get(word.lower(), word)
    if kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            return word
    return word
