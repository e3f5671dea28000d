"""What the manifest says: built from a compiled model, and read back with every key, type and limit checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler import __version__
from compiler.artifact import constants as constant_tables
from compiler.artifact import segments, signature
from compiler.artifact.constants import MAX_CONSTANTS, Constant
from compiler.artifact.segments import Entry, HostEntry
from compiler.artifact.signature import Signature
from compiler.artifact.typed import SchemaFault, array, digest, integer, optional, record, shown, text
from compiler.isa.table import table_hash
from compiler.runtime.model import CompiledModel
from compiler.target import Chip
from compiler.target.check import faults

# The meaning of the manifest's keys and of what a program may expect from who runs it.
ABI_VERSION = 2

MAX_OPTIONS = 1 << 10
MAX_KERNELS = MAX_NODES = 1 << 16

KEYS = (
    "abi_version", "chip", "compiler_version", "constants", "isa_table_hash", "kernels", "name", "options", "segments",
    "signature", "source",
)  # fmt: skip
OptionValue = str | int | bool
KernelNodes = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Manifest:
    """A manifest whose parts have been checked one by one, and against each other."""

    name: str
    chip: Chip
    entries: tuple[Entry, ...]
    constants: tuple[Constant, ...]
    signature: Signature
    kernels: tuple[KernelNodes, ...]
    source: str
    source_sha256: str
    options: Mapping[str, OptionValue]
    tables: Mapping[str, Any]  # all of it, as it is written

    @property
    def has_host(self) -> bool:
        return any(isinstance(entry, HostEntry) for entry in self.entries)


def build(model: CompiledModel, constants: tuple[Constant, ...]) -> dict[str, Any]:
    """The manifest of a model as plain tables."""
    chip = model.chip
    return {
        "abi_version": ABI_VERSION,
        "compiler_version": __version__,
        "isa_table_hash": table_hash(),
        "name": model.name,
        "chip": {"name": chip.name, "content_hash": chip.content_hash, "tables": chip.to_dict()},
        "options": dict(model.options),
        "source": {"name": segments.source_name(model.source), "sha256": model.source_sha256 or None},
        "signature": signature.build(model.inputs, model.outputs) if model.has_signature else None,
        "segments": [segments.build(segment) for segment in model.segments],
        "constants": [constant_tables.build(constant) for constant in constants],
        "kernels": [{"name": name, "nodes": list(nodes)} for name, nodes in model.kernels],
    }


# ---- compatibility --------------------------------------------------------------------------------------------


def incompatibilities(tables: object) -> list[str]:
    """Why this build cannot read the rest. The ABI and the instruction table decide, never a package version."""
    if not isinstance(tables, dict):
        return []
    found = []
    for key, what, ours in (
        ("abi_version", "ABI version", ABI_VERSION),
        ("isa_table_hash", "the instruction table", table_hash()),
    ):
        if key in tables and tables[key] != ours:
            found.append(f"the artifact is for {what} {shown(tables[key])}; this build has {ours}")
    return found


# ---- reading --------------------------------------------------------------------------------------------------


def read(tables: object, weights_bytes: int) -> Manifest:
    """Raises SchemaFault with the first thing that is wrong."""
    top = record(tables, "manifest", KEYS)
    integer(top["abi_version"], "abi_version", ABI_VERSION, ABI_VERSION)
    text(top["compiler_version"], "compiler_version")
    digest(top["isa_table_hash"], "isa_table_hash")
    source = record(top["source"], "source", ("name", "sha256"))
    chip = _chip(top["chip"])
    entries = array(top["segments"], "segments", segments.MAX_SEGMENTS, lambda v, w: segments.read(v, w, chip))
    constants = array(top["constants"], "constants", MAX_CONSTANTS, constant_tables.read)
    constant_tables.check_layout(constants, weights_bytes)
    ports = optional(top["signature"], "signature", signature.read)
    if ports is None:
        signature.check_single(entries, constants)
    else:
        signature.check_flow(ports, entries, constants)
    return Manifest(
        text(top["name"], "name"),
        chip,
        entries,
        constants,
        ports or Signature((), ()),
        array(top["kernels"], "kernels", MAX_KERNELS, _kernel),
        segments.file_name(source["name"], "source.name"),
        optional(source["sha256"], "source.sha256", digest) or "",
        _options(top["options"]),
        top,
    )


def _options(value: object) -> Mapping[str, OptionValue]:
    if not isinstance(value, dict) or len(value) > MAX_OPTIONS:
        raise SchemaFault(f"options is {shown(value)}; allowed: an object of at most {MAX_OPTIONS} keys")
    for name, option in value.items():
        text(name, "a key of options")
        if type(option) is not bool:
            where = f"options.{shown(name)}"
            text(option, where) if isinstance(option, str) else integer(option, where)
    return value


def _chip(value: object) -> Chip:
    table = record(value, "chip", ("name", "content_hash", "tables"))
    if not isinstance(table["tables"], dict):
        raise SchemaFault(f"chip.tables is {shown(table['tables'])}; allowed: an object")
    fault = next(faults(table["tables"]), None)
    if fault is not None:
        raise SchemaFault(f"chip.tables: {fault.message}")
    chip = Chip.from_dict(table["tables"])
    for key, ours in (("name", chip.name), ("content_hash", chip.content_hash)):
        if table[key] != ours:
            raise SchemaFault(f"chip.{key} is {shown(table[key])}; chip.tables says {ours}")
    return chip


def _kernel(value: object, where: str) -> KernelNodes:
    table = record(value, where, ("name", "nodes"))
    return text(table["name"], f"{where}.name"), array(table["nodes"], f"{where}.nodes", MAX_NODES, text)
