"""``tilewright explain``: why the kernel of a node is what it is; or, of an error code, what it means."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.model_options import add_model_options, driver_options
from compiler.error_codes import FORM, error_codes
from compiler.errors import Problem, UsageError
from compiler.report.tables import printable, some

if TYPE_CHECKING:
    from compiler.kernel_uses import Use
    from compiler.model_kernels import ModelKernels
    from compiler.report.explanation import Explanation

MAX_KERNELS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "tilewright explain [options] MODEL NODE\n       tilewright explain CODE\n       tilewright explain --codes"
    )
    parser.add_argument("what", metavar="MODEL | CODE", nargs="?", help="an .onnx file, or an error code (TW2402)")
    parser.add_argument(
        "node", metavar="NODE", nargs="?", help="a node by its name or one of its outputs', or an operator"
    )
    parser.add_argument("--codes", action="store_true", help="list all error codes")
    parser.add_argument("--all", action="store_true", help=f"every kernel of NODE, not the first {MAX_KERNELS} only")
    parser.add_argument("--instructions", action="store_true", help="show the instructions, too")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    if args.codes or (args.node is None and FORM.fullmatch(args.what or "")):
        return _explain_codes(args)
    if args.what is None or args.node is None:
        text = (
            "a model is explained node by node: name one" if args.what else "neither a model nor an error code is given"
        )
        raise UsageError(Problem("TW0002", text, hint="`tilewright explain MODEL NODE`, or `tilewright explain CODE`"))
    return _explain_node(args)


def _explain_codes(args: argparse.Namespace) -> int:
    if args.codes and args.what is not None:
        raise UsageError(Problem("TW0002", f"--codes lists all: {args.what} has no meaning with it"))
    known = error_codes()
    if args.what is not None and args.what not in known:
        raise UsageError(Problem("TW0040", f"no error has the code {args.what}", hint="`--codes` lists all"))
    chosen = list(known.values()) if args.codes else [known[args.what]]
    if args.json:
        print_json("explain", {"codes": [asdict(one) for one in chosen]})
    elif args.codes:
        sys.stdout.writelines(f"{one.code}  {one.means}\n" for one in chosen)
    else:
        sys.stdout.writelines(f"{one.code}: {one.means}\n{one.do}\n" for one in chosen)
    return 0


def _explain_node(args: argparse.Namespace) -> int:
    chip, options = driver_options(args)
    from compiler.driver import last_plans
    from compiler.report.explanation import explain
    from compiler.report.kernel_lookup import lookup

    looked_up = [(kernels, lookup(kernels, args.what, args.node)) for kernels in last_plans(args.what, chip, options)]
    kernels, found = next((each for each in looked_up if each[1].uses), looked_up[0])
    alike = _alike(found.uses)
    shown = alike if args.all else alike[:MAX_KERNELS]
    explained = [(explain(kernels, uses[0]), uses[1:]) for uses in shown]
    if args.json:
        content = {
            "model": args.what,
            "chip": chip.name,
            "node": args.node,
            "no_kernel": found.why_none,
            "kernels": [_content(args, one, [kernels.nodes(use) for use in same]) for one, same in explained],
            "not_shown": len(alike) - len(shown),
        }
        print_json("explain", content)
        return 0
    if not found.uses:
        sys.stdout.write(f"{printable(found.why_none)}\n")
    for one, same in explained:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(args, one, kernels, same))
    if len(alike) > len(shown):
        names = some([kernels.nodes(uses[0])[0] for uses in alike[len(shown) :]])
        sys.stdout.write(printable(f"{len(alike) - len(shown)} more kernels are not shown ({names}): see --all") + "\n")
    return 0


def _alike(uses: tuple[Use, ...]) -> list[list[Use]]:
    """The uses by their kernel: what is the same kernel needs explaining once."""
    found: dict[Any, list[Use]] = {}
    for use in uses:
        found.setdefault(use.key, []).append(use)
    return list(found.values())


def _content(args: argparse.Namespace, one: Explanation, same: list[tuple[str, ...]]) -> dict[str, Any]:
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
