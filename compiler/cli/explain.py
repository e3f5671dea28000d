"""``tilewright explain``: why the kernel of a node is what it is."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler.cli.model_options import add_model_options, driver_options
from compiler.report.tables import printable, some

if TYPE_CHECKING:
    from compiler.driver import ModelKernels, Use
    from compiler.report.explanation import Explanation

MAX_KERNELS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model, an .onnx file")
    parser.add_argument("node", metavar="NODE", help="a node by its name or one of its outputs', or an operator")
    parser.add_argument("--all", action="store_true", help=f"every kernel of NODE, not the first {MAX_KERNELS} only")
    parser.add_argument("--instructions", action="store_true", help="show the instructions, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    chip, options = driver_options(args)
    from compiler.driver import plan
    from compiler.pipeline import Observer
    from compiler.report.explanation import explain
    from compiler.report.kernel_lookup import lookup

    kernels = plan(args.model, chip, options, Observer())
    found = lookup(kernels, args.model, args.node)
    alike = _alike(kernels, found.uses)
    shown = alike if args.all else alike[:MAX_KERNELS]
    explained = [(explain(kernels, uses[0]), uses[1:]) for uses in shown]
    if args.json:
        content = {
            "schema_version": 1,
            "model": args.model,
            "chip": chip.name,
            "node": args.node,
            "no_kernel": found.why_none,
            "kernels": [_content(args, one, [kernels.nodes(use) for use in same]) for one, same in explained],
            "not_shown": len(alike) - len(shown),
        }
        print(json.dumps(content, indent=2))
        return 0
    if not found.uses:
        sys.stdout.write(f"{printable(found.why_none)}\n")
    for one, same in explained:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(args, one, kernels, same))
    if len(alike) > len(shown):
        names = some([kernels.nodes(uses[0])[0] for uses in alike[len(shown) :]])
        sys.stdout.write(printable(f"{len(alike) - len(shown)} more kernels are not shown ({names}): see --all") + "\n")
    return 0


def _alike(kernels: ModelKernels, uses: tuple[Use, ...]) -> list[list[Use]]:
    """The uses by their kernel: what is the same kernel needs explaining once."""
    found: dict[Any, list[Use]] = {}
    for use in uses:
        found.setdefault(kernels.key(use), []).append(use)
    return list(found.values())


def _content(args: argparse.Namespace, one: Explanation, same: list[tuple[str, ...]]) -> dict[str, Any]:
    from dataclasses import asdict

    content = asdict(one) | {"same_kernel": same}
    return content if args.instructions else _without_instructions(content)


def _without_instructions(content: dict[str, Any]) -> dict[str, Any]:
    parts = [_without_instructions(part) for part in content["parts"]]
    return {key: value for key, value in content.items() if key != "instructions"} | {"parts": parts}


def _lines(args: argparse.Namespace, one: Explanation, kernels: ModelKernels, same: list[Use]) -> Iterator[str]:
    from compiler.report.explanation import lines

    yield from lines(one, args.instructions)
    if same:
        yield f"the same kernel computes {some([kernels.nodes(use)[0] for use in same])}"
    yield ""
