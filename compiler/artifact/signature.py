"""The signature in a manifest, and whether every segment finds what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from compiler.artifact.constants import Constant
from compiler.artifact.segments import Entry, HostEntry, ProgramEntry, shape
from compiler.artifact.typed import SchemaFault, array, choice, record, shown, text
from compiler.isa.dtypes import DTYPES
from compiler.isa.program import Buffer
from compiler.runtime.model import Port
from compiler.runtime.ports import ONNX_DTYPES, convertible

MAX_PORTS = 1 << 12

Type = tuple[str, tuple[int, ...]]  # dtype and shape


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives. An artifact without one is a single program, whose buffers are its signature."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def build(inputs: Iterable[Port], outputs: Iterable[Port]) -> dict[str, Any]:
    return {"inputs": [_table(port) for port in inputs], "outputs": [_table(port) for port in outputs]}


def _table(port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "buffer": port.buffer,
        "onnx_dtype": port.onnx_dtype,
        "dtype": port.dtype,
        "shape": list(port.shape),
        "count": port.count,
    }


def read(value: object, where: str) -> Signature:
    table = record(value, where, ("inputs", "outputs"))
    found = Signature(
        array(table["inputs"], f"{where}.inputs", MAX_PORTS, _port),
        array(table["outputs"], f"{where}.outputs", MAX_PORTS, _port),
    )
    if not found.outputs:
        raise SchemaFault(f"{where}.outputs is empty; allowed: one or more")
    for kind, ports in (("inputs", found.inputs), ("outputs", found.outputs)):
        names = [port.name for port in ports]
        if len(set(names)) != len(names):
            raise SchemaFault(f"{where}.{kind} has two of the same name")
    counted = next((port for port in found.inputs if port.count), None)
    if counted is not None:
        raise SchemaFault(f"{where}.inputs: {shown(counted.name)} has a count, which only outputs have")
    return found


def _port(value: object, where: str) -> Port:
    table = record(value, where, ("name", "buffer", "onnx_dtype", "dtype", "shape", "count"))
    port = Port(
        text(table["name"], f"{where}.name"),
        text(table["buffer"], f"{where}.buffer"),
        choice(table["onnx_dtype"], f"{where}.onnx_dtype", ONNX_DTYPES),
        choice(table["dtype"], f"{where}.dtype", DTYPES),
        shape(table["shape"], f"{where}.shape", 0),
        text(table["count"], f"{where}.count"),
    )
    if not convertible(port.onnx_dtype, port.dtype):
        raise SchemaFault(f"{where}: {port.onnx_dtype} does not become {port.dtype}")
    if port.count and not port.shape:
        raise SchemaFault(f"{where}.count is {shown(port.count)}; allowed for a scalar: none")
    return port


# ---- what is there when ------------------------------------------------------------------------------------------


def check_single(entries: tuple[Entry, ...], constants: tuple[Constant, ...]) -> None:
    """Without a signature there is one program, and constants are for its inputs."""
    if len(entries) != 1 or not isinstance(entries[0], ProgramEntry):
        raise SchemaFault("segments without a signature; allowed: one program")
    inputs = {b.name: b for b in entries[0].program.buffers if b.role in ("input", "inout")}
    for index, constant in enumerate(constants):
        _check_type(f"constants[{index}]", constant, inputs.pop(constant.name, None))


def check_flow(signature: Signature, entries: tuple[Entry, ...], constants: tuple[Constant, ...]) -> None:
    """Every buffer is there, and of its type, before a segment reads it; every output is there in the end."""
    there: dict[str, Type | None] = {}  # None: a host function wrote it, which says itself of which type
    for index, port in enumerate(signature.inputs):
        _add(there, port.buffer, (port.dtype, port.shape), f"signature.inputs[{index}].buffer")
    for index, constant in enumerate(constants):
        _add(there, constant.name, (constant.dtype, constant.shape), f"constants[{index}].name")
    wanted = _read_by(entries)
    for index, constant in enumerate(constants):
        if constant.name not in wanted and constant.name not in {port.buffer for port in signature.outputs}:
            raise SchemaFault(f"constants[{index}].name is {shown(constant.name)}, which no segment reads")
    for index, entry in enumerate(entries):
        if isinstance(entry, HostEntry):
            _pass_host(there, entry, f"segments[{index}]")
        else:
            _pass_program(there, entry.program.buffers, f"segments[{index}]")
    for index, port in enumerate(signature.outputs):
        _check_output(there, port, f"signature.outputs[{index}]")


def _read_by(entries: tuple[Entry, ...]) -> set[str]:
    found = set[str]()
    for entry in entries:
        if isinstance(entry, HostEntry):
            found |= set(entry.segment.arguments)
        else:
            found |= {b.name for b in entry.program.buffers if b.role in ("input", "inout")}
    return found


def _pass_host(there: dict[str, Type | None], entry: HostEntry, where: str) -> None:
    written = entry.segment.written
    for name in entry.segment.arguments:
        if name not in written and name not in there:
            raise SchemaFault(f"{where} reads {shown(name)}, which nothing has written")
    for name in written:
        _add(there, name, None, where)


def _pass_program(there: dict[str, Type | None], buffers: tuple[Buffer, ...], where: str) -> None:
    for index, buffer in enumerate(buffers):
        at = f"{where}.buffers[{index}]"
        if buffer.role in ("input", "inout"):
            if buffer.name not in there:
                raise SchemaFault(f"{at} is input {shown(buffer.name)}, which nothing has written")
            found = there[buffer.name]
            if found is not None and found != (buffer.dtype, buffer.shape):
                text = f"{buffer.dtype} {list(buffer.shape)}; {shown(buffer.name)} is {found[0]} {list(found[1])}"
                raise SchemaFault(f"{at} is {text}")
        elif buffer.role == "output":
            _add(there, buffer.name, (buffer.dtype, buffer.shape), at)


def _add(there: dict[str, Type | None], name: str, kind: Type | None, where: str) -> None:
    if name in there:
        raise SchemaFault(f"{where} is {shown(name)}, which is there already")
    there[name] = kind


def _check_output(there: Mapping[str, Type | None], port: Port, where: str) -> None:
    for name, kind in ((port.buffer, (port.dtype, port.shape)), *(((port.count, None),) if port.count else ())):
        if name not in there and not (kind and prod(kind[1]) == 0):
            raise SchemaFault(f"{where} is {shown(name)}, which nothing writes")
        found = there.get(name)
        if kind is not None and found is not None and found != kind:
            raise SchemaFault(f"{where} is {kind[0]} {list(kind[1])}; {shown(name)} is {found[0]} {list(found[1])}")
        if kind is None and found is not None and (found[0] != "int32" or prod(found[1]) != 1):
            raise SchemaFault(f"{where}.count is {found[0]} {list(found[1])}; allowed: one int32")


def _check_type(where: str, constant: Constant, buffer: Buffer | None) -> None:
    if buffer is None:
        raise SchemaFault(f"{where}.name is {shown(constant.name)}, which is no input, or has its contents already")
    if (buffer.dtype, buffer.shape) != (constant.dtype, constant.shape):
        text = f"{constant.dtype} {list(constant.shape)}; its buffer is {buffer.dtype} {list(buffer.shape)}"
        raise SchemaFault(f"{where} is {text}")
