"""``tilewright op-test``: operators of one's own on every chip and many shapes, against their own TE on the CPU."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.words import natural
from compiler.errors import Problem, UsageError
from compiler.report.tables import columns, printable

if TYPE_CHECKING:
    from compiler.operators import Declared
    from compiler.report.operator_test import Outcome

CHIPS = ("tiny", "tw1", "tw2")
_SHOWN = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Ends with 0 where all is right, 11 where a result differs, 9 where a program has a hazard, 5 where a kernel "
        "needs the host (--allow-host: 0) or no shape is taken, else with the code of the error. FILE is run."
    )
    parser.add_argument("file", metavar="FILE", help="operators: a .py file, a package or a module; it is run")
    parser.add_argument("operators", metavar="NAME", nargs="*", help="only these operators of it")
    parser.add_argument(
        "--chip", dest="chips", action="append", metavar="CHIP", help="only this chip (may be repeated)"
    )
    parser.add_argument("--quick", action="store_true", help="two shapes instead of six")
    parser.add_argument("--allow-host", action="store_true", help="a kernel on the host is no failure")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the inputs (default: 0)")


def run(args: argparse.Namespace) -> int:
    operators = _operators(args)
    from compiler.report.operator_test import sweep
    from compiler.target import load_chip

    chips = [load_chip(name) for name in args.chips or CHIPS]
    outcomes = []
    for outcome in sweep(operators, chips, quick=args.quick, seed=args.seed):
        outcomes.append(outcome)
        if not args.json and sys.stderr.isatty():
            print(f"\r{len(outcomes)} cases", end="", file=sys.stderr, flush=True)
    if not args.json and sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    code = _exit_code(outcomes, allow_host=args.allow_host)
    if args.json:
        print_json("op-test", {"file": args.file, "right": code == 0, "cases": [asdict(one) for one in outcomes]})
    else:
        _print(outcomes)
    return code


def _operators(args: argparse.Namespace) -> list[Declared]:
    """Those of the file, in its order."""
    from compiler.operators import load_operators
    from compiler.operators.loading import operators_of

    load_operators(args.file)
    found = operators_of(args.file)
    missing = [name for name in args.operators if name not in {n for one in found for n in (one.name, one.full_name)}]
    if missing:
        hint = f"it declares {', '.join(one.full_name for one in found)}"
        raise UsageError(Problem("TW0002", f"{args.file} declares no operator {missing[0]!r}", hint=hint))
    return [one for one in found if not args.operators or {one.name, one.full_name} & set(args.operators)]


def _exit_code(outcomes: list[Outcome], *, allow_host: bool) -> int:
    from compiler.report import operator_test

    bad = [one for one in outcomes if one.verdict not in (operator_test.OK, operator_test.REFUSED)]
    if allow_host:
        bad = [one for one in bad if one.verdict != operator_test.HOST]
    for code in (11, 9):
        if any(one.exit_code == code for one in bad):
            return code
    if bad:
        return max(one.exit_code for one in bad)
    tried = {one.operator for one in outcomes if one.verdict != operator_test.REFUSED}
    return 0 if {one.operator for one in outcomes} == tried else 5


def _print(outcomes: list[Outcome]) -> None:
    rows: list[tuple[str, ...]] = [("operator", "chip", "case", "inputs", "cycles", "")]
    for one in outcomes:
        said = one.verdict + (f": {one.detail[:_SHOWN]}" if one.detail else "")
        swept = ", ".join(f"{name}={value}" for name, value in _swept(one.attributes).items())
        inputs = f"{one.inputs}; {swept}" if swept else one.inputs
        rows.append((one.operator, one.chip, one.case, inputs, f"{one.cycles:,}" if one.cycles else "0", said))
    sys.stdout.writelines(f"{printable(line)}\n" for line in columns(rows))
    counts = Counter(one.verdict for one in outcomes)
    print(f"\n{len(outcomes)} cases: {', '.join(f'{count} {verdict}' for verdict, count in sorted(counts.items()))}")


def _swept(attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
