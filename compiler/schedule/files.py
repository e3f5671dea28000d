"""Schedules in files: the one that the compiler chose, to be read and changed, and one that somebody gives it.

clusters = 4              # run it, each on its part of the batch; 0: all work together on every kernel
rows = true               # or each on some rows of its images
[[tail]]                  # none, or a model of its own behind the rest: calls, and all that needs their results
calls = ["boxes_all"]
clusters = 1              # and rows, as above
[pieces]                  # of calls in their order; depth first where each count divides the one before it
"Relu_output_0" = 4       # /conv1/Conv /bn1/BatchNormalization /Relu
"Add_output_0" = { pieces = 2, after_all = true }   # not before all pieces of all calls before are done
"Clip_output_0" = { pieces = 2, in_l1 = true }      # its result stays in the cores' L1, for the next call
"Conv_3" = { pieces = 8, axis = 2 }                 # in bands of rows, as the calls beside it that say the same
"logits" = 1              # /fc/Gemm
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler import graph
from compiler.clusters import TOGETHER, by_rows, clusters_of
from compiler.errors import Diagnostics, InputError, InvalidError, Place, Problem
from compiler.schedule.manual import Manual, Tail
from compiler.schedule.noted import BANDS, IN_L1, pieces_of, searched_of

FLAGS = ("after_all", "in_l1")  # what a call may be told beside its pieces
MAX_FILE_BYTES = 4 << 20
_HEADING = "[pieces]  # in which each call runs, in order: depth first where each count divides the one before it"
_BY_ROWS = "rows = true  # each on some rows of images"
_TAIL = re.compile(r"\s*\[\[?\s*[\"']?tail[\"']?\s*\]")
_TABLE = re.compile(r"\s*\[\[?\s*[\"']?([^\"'\]]+?)[\"']?\s*\]")
_KEY = re.compile(r"""\s*(?:["']?pieces["']?\s*\.\s*)?(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*[.=]""")


def load_schedule(path: Path) -> Manual:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        text = f"cannot read the schedule: {error.strerror or type(error).__name__}"
        raise InputError(Problem("TW2630", text, Place(str(path)))) from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(Problem("TW2630", f"a schedule may have at most {MAX_FILE_BYTES} bytes", Place(str(path))))
    return parse_schedule(content.decode("utf-8", errors="replace"), str(path))


def parse_schedule(text: str, file: str = "<schedule>") -> Manual:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        place = Place(file, int(where[1]) if where else text.count("\n") + 1, 1)
        hint = "save the file without a byte-order mark" if text.startswith("\ufeff") else ""
        raise InvalidError(Problem("TW2630", f"not valid TOML: {error}", place, hint)) from error
    except RecursionError as error:
        raise InvalidError(Problem("TW2630", "arrays or tables are nested too deeply", Place(file))) from error
    lines = dict[str, int]()
    for number, line in enumerate(text.split("\n"), 1):
        if found := _KEY.match(line) or _TABLE.match(line):
            lines.setdefault(next(group for group in found.groups() if group is not None), number)
    problems = Diagnostics()

    def at(name: str) -> Place:
        return Place(file, lines[name], 1) if name in lines else Place(file)

    def checked(name: str, value: Any, least: int = 1) -> None:
        if type(value) is not int or value < least:
            problems.add("TW2630", f"{name} must be a number of at least {least}", at(name))

    for name in tables.keys() - {"clusters", "rows", "tail", "pieces"}:
        known = "clusters, rows, [[tail]], [pieces]"
        problems.add("TW2630", f"a schedule has no {name}", at(name), known)
    begins = [number for number, line in enumerate(text.split("\n"), 1) if _TAIL.match(line)]
    tails = _tails(tables.get("tail", []), [Place(file, number, 1) for number in begins], at("tail"), problems)
    pieces = tables.get("pieces", {})
    if not isinstance(pieces, dict):
        problems.add("TW2630", "pieces must be a table", at("pieces"))
        pieces = {}
    entries = {name: value if isinstance(value, dict) else {"pieces": value} for name, value in pieces.items()}
    for name, entry in entries.items():
        checked(name, entry.get("pieces"))
        _check_flags(name, entry, at(name), problems)
    rows = _told_rows(tables, at("rows"), problems)
    if "clusters" in tables:
        checked("clusters", tables["clusters"], TOGETHER)
    problems.raise_if_any(InvalidError)
    counts = {name: int(entry["pieces"]) for name, entry in entries.items()}
    after_all, in_l1 = (frozenset(name for name, entry in entries.items() if entry.get(key, False)) for key in FLAGS)
    axes = {name: int(entry["axis"]) for name, entry in entries.items() if "axis" in entry}
    return Manual(file, tables.get("clusters"), counts, after_all, lines, in_l1, axes, tails, rows)


def _told_rows(table: Mapping[str, Any], place: Place, problems: Diagnostics) -> bool:
    rows, clusters = table.get("rows", False), table.get("clusters")
    if not isinstance(rows, bool):
        problems.add("TW2630", "rows must be true or false", place)
    elif rows and (type(clusters) is not int or clusters < 2):
        problems.add("TW2630", "rows are of at least 2 clusters", place, "clusters = 2, or as many as the chip has")
    return rows is True


def _tails(given: Any, places: Sequence[Place], otherwise: Place, problems: Diagnostics) -> tuple[Tail, ...]:
    found = list[Tail]()
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given) or len(given) != len(places):
        problems.add("TW2630", "tails must be written as [[tail]]", places[0] if places else otherwise)
        return ()
    for entry, place in zip(given, places, strict=True):
        for key in entry.keys() - {"calls", "clusters", "rows"}:
            problems.add("TW2630", f"a tail has no {key}", place, "calls, clusters, rows")
        calls, clusters = entry.get("calls"), entry.get("clusters")
        if not isinstance(calls, list) or not calls or not all(isinstance(name, str) for name in calls):
            problems.add("TW2630", "calls of a tail must be a list of names", place)
            continue
        if "clusters" in entry and (type(clusters) is not int or clusters < TOGETHER):
            problems.add("TW2630", f"clusters of a tail must be a number of at least {TOGETHER}", place)
        found.append(Tail(tuple(calls), clusters, place, _told_rows(entry, place, problems)))
    return tuple(found)


def _check_flags(name: str, entry: Mapping[str, Any], place: Place, problems: Diagnostics) -> None:
    for key in entry.keys() - {"pieces", "axis", *FLAGS}:
        problems.add("TW2630", f"{name} has no {key}", place, ", ".join(("pieces", "axis", *FLAGS)))
    axis = entry.get("axis", 0)
    if type(axis) is not int or axis < 0:
        problems.add("TW2630", f"axis of {name} must be a number of at least 0", place)
    for key in FLAGS:
        if not isinstance(entry.get(key, False), bool):
            problems.add("TW2630", f"{key} of {name} must be true or false", place)


def written(modules: Sequence[Any], nodes: Mapping[str, Sequence[str]], tails: Sequence[Sequence[str]] = ()) -> str:
    """The schedule of a compiled model as a file; ``nodes`` are those of ONNX by the names of calls. ``modules`` are
    what it was compiled as, one behind the other, and ``tails`` the first calls of each but the first.
    """
    numbers = [clusters_of(module) for module in modules]
    lines = [
        *(f"# {searched.said}" for searched in map(searched_of, modules) if searched is not None),
        f"clusters = {numbers[0]}  # that run it, each on a part of the batch; {TOGETHER}: all together",
        *([_BY_ROWS] if by_rows(modules[0]) else []),
    ]
    for calls, clusters, module in zip(tails, numbers[1:], modules[1:], strict=True):
        listed = ", ".join(f'"{name}"' for name in calls)
        lines += ["", "[[tail]]  # these and what needs their results: a model of its own behind the rest"]
        lines += [f"calls = [{listed}]", f"clusters = {clusters}", *([_BY_ROWS] if by_rows(module) else [])]
    lines += ["", _HEADING]
    for module in modules:
        lines += _pieces(module, nodes)
    return "\n".join(lines) + "\n"


def _pieces(module: Any, nodes: Mapping[str, Sequence[str]]) -> list[str]:
    in_l1, lines = {str(name) for name in graph.attribute(module["main"], IN_L1, ())}, list[str]()
    bands = {str(name): rest for name, *rest in graph.attribute(module["main"], BANDS, ())}
    for members, count, breaks in pieces_of(module):
        comment = " ".join(dict.fromkeys(node for member in members for node in nodes.get(member, ())))
        shown = "".join(char if char.isprintable() else "?" for char in comment)
        parts, waits = [f"pieces = {count}"], breaks
        if members[-1] in bands:
            number, axis, *begins = (int(each) for each in bands[members[-1]])
            waits = any(begins)
            parts = [f"pieces = {number}", f"axis = {axis}"]
        told = zip(FLAGS, (waits, members[-1] in in_l1), strict=True)
        parts += [f"{key} = true" for key, holds in told if holds]
        said = f"{{ {', '.join(parts)} }}" if len(parts) > 1 else str(count)
        lines.append(f'"{members[-1]}" = {said}' + (f"  # {shown}" if shown else ""))
    return lines
