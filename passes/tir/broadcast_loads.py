"""Lets clusters that do the same read once what they have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from compiler.codegen.far_loads import Site, Sites, far_load, operands
from compiler.codegen.instruction_form import Call, memory_of
from compiler.emission.calls import instruction
from compiler.isa.table import by_mnemonic
from compiler.target import Chip
from compiler.tir.near import common_parameters, near_parameters
from compiler.tir.structure import structural_map
from passes.base import Pass


@dataclass(frozen=True)
class BroadcastLoads(Pass):
    """A load of what all clusters load that run the kernel, each for its part of the data, comes to all at once.

        tw.ldnz.ddr.fp16(w_l1[0], w[k * 64, core * 128], 64, 128, 4096, 64)
    ->  tw.pldnz.fp16(w_l1[0], w[k * 64, core * 128], 64, 128, 4096, 64)

    DDR moves the bytes once; cores of one number start together, and what one of them has to wait for, all do.

    1. Nobody writes the bytes, and they are known from core and loops alone: each cluster loads them in the same turns.
    2. They go to L1. What cores of a cluster share comes by way of LLB: that is `ShareLoads`' to see.
    """

    name: ClassVar[str] = "broadcast-loads"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        common = common_parameters(subject, chip) - near_parameters(subject)
        if not common:
            return subject
        sites = Sites.of(subject)
        written = sites.written

        def meets(site: Site) -> bool:
            load = far_load(site, sites.core, sites.cores, written, chip, common)
            return load is not None and load.alike > 1

        def replaced(statement: Any) -> Any:
            places = [site for site in sites.found if statement.same_as(site.statement)]
            met = _met(places[0].call) if places else None
            if met is None or not all(map(meets, places)):
                return statement
            return instruction(*met, statement.value.args[1:])

        return structural_map(subject, (tirx.Evaluate, replaced))


def _met(call: Call) -> tuple[str, list[str]] | None:
    """Mnemonic and modifiers of the same load by all clusters at once; None where there is none into L1."""
    row = by_mnemonic().get(f"p{call.row.mnemonic}")
    targets = [memory_of(address.buffer) for tensor, address in operands(call) if "w" in tensor.role]
    if row is None or not row.meets or targets != ["l1"]:
        return None
    given = dict(zip((modifier.name for modifier in call.row.modifiers), call.mods, strict=True))
    return row.mnemonic, [given[modifier.name] for modifier in row.modifiers]
