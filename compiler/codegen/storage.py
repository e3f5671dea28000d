"""A kernel's code as plain data, and back: what the cache keeps and what worker processes send."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from compiler.codegen.fetches import Sites
from compiler.codegen.kernel import KernelCode
from compiler.codegen.lowering import Parameter
from compiler.codegen.prologue import Ahead
from compiler.codegen.touches import Far, Flags, Touch, Touched, Use
from compiler.isa.encoding import decode, encode
from compiler.isa.model import Instr
from compiler.isa.table import by_mnemonic


def to_tables(code: KernelCode) -> dict[str, Any]:
    """Lists, tables, numbers and text only."""
    # A kernel may branch to its end; in a program of its own something has to stand there.
    end = Instr(by_mnemonic()["halt"], (), ())
    return {
        "name": code.name,
        "instrs": b64encode(encode((*code.instrs, end))).decode(),
        "relocations": [list(one) for one in code.relocations],
        "parameters": [asdict(parameter) for parameter in code.parameters],
        "texts": list(code.texts),
        "statements": list(code.statements),
        "memory": code.memory,
        "cores": code.cores,
        "touched": asdict(code.touched),
        "gate": code.gate,
        "gated": list(code.gated),
        "prologue": [{**vars(ahead), "instrs": b64encode(encode(ahead.instrs)).decode()} for ahead in code.prologue],
        "turns": code.turns,
        "in_place": [list(pair) for pair in code.in_place],
        "sites": [list(code.sites.places), code.sites.times],
    }


def from_tables(tables: Mapping[str, Any]) -> KernelCode:
    """Raises KeyError, TypeError, ValueError or a TilewrightError for anything that `to_tables` did not make."""
    return KernelCode(
        name=str(tables["name"]),
        instrs=decode(b64decode(tables["instrs"], validate=True))[:-1],
        relocations=tuple((int(index), int(parameter)) for index, parameter in tables["relocations"]),
        parameters=tuple(Parameter(**{**one, "shape": tuple(one["shape"])}) for one in tables["parameters"]),
        texts=tuple(str(text) for text in tables["texts"]),
        statements=tuple(int(statement) for statement in tables["statements"]),
        memory={str(memory): int(used) for memory, used in tables["memory"].items()},
        cores=int(tables["cores"]),
        touched=_touched(tables["touched"]),
        gate=int(tables["gate"]),
        gated=tuple(int(parameter) for parameter in tables["gated"]),
        prologue=tuple(_ahead(one) for one in tables["prologue"]),
        turns=float(tables["turns"]),
        in_place=tuple((int(result), int(source)) for result, source in tables["in_place"]),
        sites=_sites(*tables["sites"]),
    )


def _sites(places: Any, times: Any) -> Sites:
    return Sites(tuple(map(int, places)), int(times))


def _ahead(tables: Mapping[str, Any]) -> Ahead:
    return Ahead(
        instrs=decode(b64decode(tables["instrs"], validate=True)),
        relocations=tuple((int(index), int(parameter)) for index, parameter in tables["relocations"]),
        **{
            name: int(tables[name])
            for name in ("parameter", "low", "high", "scratch", "number", "loops", "place", "turn")
        },
    )


def _touched(tables: Mapping[str, Any]) -> Touched:
    return Touched(
        touches=tuple(
            Touch(**{**one, "low": tuple(one["low"]), "high": tuple(one["high"])}) for one in tables["touches"]
        ),
        uses=tuple(Use(**one) for one in tables["uses"]),
        far=tuple(Far(**one) for one in tables["far"]),
        movable=tuple(int(parameter) for parameter in tables["movable"]),
        flags=tuple(Flags(tuple(one["queues"]), int(one["ids"])) for one in tables["flags"]),
    )
