"""Holds a parsed chip file against the schema and finds everything that is wrong with it at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.target.schema import KEYS, PATH_KEYS, PATHS, RULES, Key, describe

MAX_UNKNOWN_KEYS = 50  # a table with more is not a chip file's: the rest is counted, not listed


@dataclass(frozen=True)
class Fault:
    """What is wrong with one key; ``near`` is the key to point at in the file."""

    code: str
    message: str
    near: str
    hint: str = ""


def _sections() -> dict[str, dict[str, Key]]:
    sections: dict[str, dict[str, Key]] = {"": {}}
    for key in KEYS:
        section, _, leaf = key.name.rpartition(".")
        sections.setdefault(section, {})[leaf] = key
    return sections


# The tables of a chip file, each before the tables inside it; [path] is checked apart, since its tables vary by chip.
SECTIONS = _sections()


def faults(tables: Mapping[str, Any]) -> Iterator[Fault]:
    """Every fault of a parsed file. A rule between keys is checked once the keys it names are right by themselves."""
    values: dict[str, Any] = {}
    found: dict[str, Mapping[str, Any]] = {"": tables}
    for section, keys in SECTIONS.items():
        if section:
            yield from _find(section, _children(section), found)
        if section in found:
            yield from _keys(section, keys, found[section], values)
            yield from _unknown(section, _children(section), found[section])
    yield from _find("path", [row.name for row in PATHS.values() if row.required], found)
    if "path" in found:
        yield from _paths(found, values)
    for item in RULES:
        if all(name in values for name in item.keys) and not item.holds(*(values[name] for name in item.keys)):
            here = ", ".join(f"{name} = {_shown(values[name])}" for name in item.keys)
            yield Fault("TW1115", f"{item.text}; here {here}", item.keys[0])


def _children(section: str) -> list[str]:
    tables = [*SECTIONS, "path"] if not section else SECTIONS
    inner = [name.rpartition(".") for name in tables if name]
    return [*SECTIONS[section], *(leaf for parent, _, leaf in inner if parent == section)]


def _find(section: str, needs: list[str], found: dict[str, Mapping[str, Any]]) -> Iterator[Fault]:
    parent, _, leaf = section.rpartition(".")
    if parent not in found:
        return
    if leaf not in found[parent]:
        yield Fault("TW1111", f"table [{section}] is missing; it holds {', '.join(needs)}", parent)
    elif not isinstance(found[parent][leaf], dict):
        yield Fault("TW1112", f"[{section}] must be a table, not {describe(found[parent][leaf])}", section)
    else:
        found[section] = found[parent][leaf]


def _keys(section: str, keys: Mapping[str, Key], table: Mapping[str, Any], values: dict[str, Any]) -> Iterator[Fault]:
    for leaf, key in keys.items():
        name = f"{section}.{leaf}" if section else leaf
        if leaf not in table:
            yield Fault("TW1111", f"{name} is missing: {key.doc} ({key.allowed})", section)
        elif fault := key.fault(table[leaf]):
            code, text = fault
            yield Fault(code, f"{name} {text}", name)
        else:
            values[name] = table[leaf]


def _paths(found: dict[str, Mapping[str, Any]], values: dict[str, Any]) -> Iterator[Fault]:
    table = found["path"]
    yield from _unknown("path", list(PATHS), table)
    values["path"] = frozenset(name for name in table if name in PATHS)
    keys = {key.name: key for key in PATH_KEYS}
    for name, row in PATHS.items():
        if row.required or name in table:
            section = f"path.{name}"
            yield from _find(section, list(keys), found)
            if section in found:
                yield from _keys(section, keys, found[section], values)
                yield from _unknown(section, list(keys), found[section])


def _unknown(section: str, known: list[str], table: Mapping[str, Any]) -> Iterator[Fault]:
    strangers = [leaf for leaf in table if leaf not in known]
    for leaf in strangers[:MAX_UNKNOWN_KEYS]:
        name = f"{section}.{_bare(leaf)}" if section else _bare(leaf)
        yield Fault("TW1110", f"{name} is not a key of a chip file; its value is {describe(table[leaf])}",
                    f"{section}.{leaf}" if section else leaf, _suggest(section, leaf, known))  # fmt: skip
    if len(strangers) > MAX_UNKNOWN_KEYS:
        more = len(strangers) - MAX_UNKNOWN_KEYS
        yield Fault("TW1110", f"{more} more unknown keys in [{section}] are not listed", section)


def _suggest(section: str, leaf: str, known: list[str]) -> str:
    elsewhere = [key.name for key in KEYS if key.name.rpartition(".")[2] == leaf]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    close = difflib.get_close_matches(leaf[:64], known, n=1)
    if close:
        return f"did you mean {section}.{close[0]}?" if section else f"did you mean {close[0]}?"
    return f"[{section}] holds {', '.join(known)}" if section else f"a chip file holds {', '.join(known)}"


def _bare(leaf: str) -> str:
    return leaf if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", leaf) else describe(leaf)


def _shown(value: Any) -> str:
    return f"[{', '.join(sorted(value))}]" if isinstance(value, frozenset) else str(value)
