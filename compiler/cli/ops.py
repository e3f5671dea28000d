"""``tilewright ops``: the operators that are supported, from where they are declared."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import only_one, print_json
from compiler.cli.model_options import add_ops_option
from compiler.report.tables import columns

if TYPE_CHECKING:
    from compiler.operators import Declared

INTERNAL = "tilewright"  # the domain of operators that models do not call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="an operator to describe")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    add_ops_option(parser)


def run(args: argparse.Namespace) -> int:
    only_one(args, "markdown")
    from compiler.operators import all_operators, load_operators

    load_operators(args.ops)
    public = [one for one in all_operators() if one.domain != INTERNAL]
    chosen = [one for one in public if args.name in (None, one.name, one.full_name)]
    imported = [name for name in _gone_after_import() if args.name in (None, name)]
    if not chosen and not imported:
        raise _unknown(args.name, [*(one.name for one in public), *_gone_after_import()])
    if args.json:
        print_json("ops", {"operators": [_content(one) for one in chosen], "gone_after_import": imported})
        return 0
    lines = _markdown(chosen, imported) if args.markdown else _text(chosen, imported, args.name is not None)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _gone_after_import() -> list[str]:
    """Operators that importing a model answers, unrolls or inlines: nothing is left of them to compute."""
    from compiler.frontend.control_flow import CONTROL_FLOW
    from compiler.frontend.static_operators import STATIC_OPERATORS

    return sorted({*CONTROL_FLOW, *STATIC_OPERATORS})


def _unknown(name: str, names: Sequence[str]) -> Exception:
    from difflib import get_close_matches

    from compiler.errors import Problem, UsageError

    near = get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "`tilewright ops` lists all"
    return UsageError(Problem("TW0002", f"there is no operator `{name}`", hint=hint))


def _content(one: Declared) -> dict[str, Any]:
    return {
        "name": one.full_name,
        "class": one.schedule or "composition",
        "inputs": [_input_text(parameter) for parameter in one.signature.inputs],
        "attributes": {parameter.name: _default(parameter.default) for parameter in one.signature.attributes.values()},
        "doc": _first_line(one),
    }


def _input_text(parameter: Any) -> str:
    name = f"{parameter.name}..." if parameter.variadic else str(parameter.name)
    kind = ", known when compiling" if parameter.kind == "constant" else ""
    return f"{name}{kind}{', optional' if parameter.optional else ''}"


def _default(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _first_line(one: Declared) -> str:
    return (one.function.__doc__ or "").strip().partition("\n")[0]


def _text(chosen: Sequence[Declared], imported: Sequence[str], in_detail: bool) -> Iterator[str]:
    if in_detail:
        for one in chosen:
            content = _content(one)
            yield f"{content['name']} ({content['class']}): {content['doc']}".rstrip(": ")
            yield from (f"  input {text}" for text in content["inputs"])
            yield from (f"  attribute {name} = {value!r}" for name, value in content["attributes"].items())
        yield from (f"{name}: gone after import" for name in imported)
        return
    rows = [(one.full_name, one.schedule or "composition", _first_line(one)) for one in chosen]
    yield from columns([("operator", "class", ""), *rows])
    yield ""
    counts = Counter(one.schedule or "composition" for one in chosen)
    yield f"{len(chosen)} operators: {', '.join(f'{kind} {count}' for kind, count in sorted(counts.items()))}"
    yield f"{len(imported)} more are gone after import: {', '.join(imported)}"


def _markdown(chosen: Sequence[Declared], imported: Sequence[str]) -> Iterator[str]:
    yield "# Supported operators"
    yield ""
    yield "Made by `tilewright ops --markdown` from the declarations."
    yield ""
    yield "| operator | class | inputs | attributes |"
    yield "|---|---|---|---|"
    for one in chosen:
        content = _content(one)
        cells = (content["name"], content["class"], "; ".join(content["inputs"]), ", ".join(content["attributes"]))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield from (f"| {name} | gone after import | | |" for name in imported)
