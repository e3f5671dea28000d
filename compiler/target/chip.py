"""A chip as the rest of the project sees it: frozen dataclasses that mirror the TOML file key by key.

What a key means and which values it may have stands in :mod:`compiler.target.schema` and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

# Data types by their names in the chip file and by the names numpy and TVM give them.
_CUBE_DTYPES = {
    "fp16": "fp16", "float16": "fp16",
    "bf16": "bf16", "bfloat16": "bf16",
    "fp32": "fp32", "float32": "fp32",
    "int8": "int8",
}  # fmt: skip
MEMORIES = ("ddr", "llb", "l1", "l0a", "l0b", "l0c", "ub", "bt", "fb")


@dataclass(frozen=True)
class Memory:
    ddr_bytes: int
    llb_bytes: int
    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    ub_bytes: int
    bt_bytes: int
    fb_bytes: int


@dataclass(frozen=True)
class Queues:
    depth: int


@dataclass(frozen=True)
class Scalar:
    issue_cycles: int
    branch_taken_cycles: int
    load_cycles: int
    memory_cycles: int
    memory_far_cycles: int


@dataclass(frozen=True)
class Sync:
    flag_cycles: int
    barrier_cycles: int
    core_barrier_cycles: int
    cross_flag_cycles: int


@dataclass(frozen=True)
class Banks:
    groups: int
    group_shift: int
    banks: int
    bank_shift: int
    same_group_read_millicycles: int
    same_group_write_millicycles: int
    same_bank_read_write_millicycles: int


@dataclass(frozen=True)
class Vector:
    bytes_per_cycle: int
    head_cycles: int
    tail_cycles: int
    banks: Banks


@dataclass(frozen=True)
class Cube:
    overhead_cycles: int
    fp16_macs_per_cycle: int
    bf16_macs_per_cycle: int
    fp32_macs_per_cycle: int
    int8_macs_per_cycle: int


@dataclass(frozen=True)
class Bandwidth:
    ddr_bytes_per_kilocycle: int
    llb_bytes_per_kilocycle: int


@dataclass(frozen=True)
class Transfer:
    ddr_line_bytes: int
    ragged_nz_percent: int


@dataclass(frozen=True)
class Path_:
    """A way between two memories. The underscore keeps it apart from :class:`pathlib.Path`."""

    bytes_per_cycle: int
    latency_cycles: int
    issue_cycles: int


@dataclass(frozen=True)
class Chip:
    """One machine. A path that the hardware lacks is absent from ``path``: instructions that need it are illegal."""

    schema_version: int
    name: str
    description: str
    clock_mhz: int
    clusters: int
    cores_per_cluster: int
    event_ids: int
    cross_flag_ids: int
    cross_flag_max: int
    block_bytes: int
    memory: Memory
    queues: Queues
    scalar: Scalar
    sync: Sync
    vector: Vector
    cube: Cube
    bandwidth: Bandwidth
    transfer: Transfer
    path: Mapping[str, Path_]
    alike: int = 1  # clusters that do what this one does, itself included: of one that stands for several

    @property
    def cores(self) -> int:
        return self.clusters * self.cores_per_cluster

    def one_cluster(self, running: int = 0) -> Chip:
        """One of its clusters as a chip, where so many run (0: all): it has its part of the bandwidth that these share,
        and reaches all of DDR.
        """
        if self.clusters == 1:
            return self
        alike = running or self.clusters
        rate = max(1, self.bandwidth.ddr_bytes_per_kilocycle // alike)
        bandwidth = replace(self.bandwidth, ddr_bytes_per_kilocycle=rate)
        return replace(self, clusters=1, bandwidth=bandwidth, alike=alike)

    def all_alike(self) -> Chip:
        """Of one of several clusters that run: all of these as a chip."""
        rate = self.bandwidth.ddr_bytes_per_kilocycle * self.alike
        bandwidth = replace(self.bandwidth, ddr_bytes_per_kilocycle=rate)
        return replace(self, clusters=self.clusters * self.alike, bandwidth=bandwidth, alike=1)

    @property
    def broadcasts(self) -> bool:
        """Whether there are others that the cluster can load the same bytes with, so that DDR is read once for all."""
        return self.alike > 1 and {"ddr_l1s", "ddr_llbs"} <= self.path.keys()

    @property
    def scales_columns(self) -> bool:
        """Whether what leaves the cube is scaled column by column, by what lies in a table."""
        return {"ddr_l1", "l1_fb"} <= self.path.keys()

    def cluster_of(self, core: int) -> int:
        if not 0 <= core < self.cores:
            raise ValueError(f"chip {self.name} has cores 0..{self.cores - 1}, not {core}")
        return core // self.cores_per_cluster

    def memory_bytes(self, name: str) -> int:
        """Size of one instance: the chip's DDR, a cluster's LLB, a core's own memories."""
        if name not in MEMORIES:
            raise ValueError(f"no memory is called {name!r}: {', '.join(MEMORIES)}")
        size: int = getattr(self.memory, f"{name}_bytes")
        return size

    def multiplies(self, dtype_name: str) -> bool:
        """Whether the cube has products of this type."""
        return dtype_name in _CUBE_DTYPES

    def macs_per_cycle(self, dtype_name: str) -> int:
        """Cube multiply-accumulates per cycle and core for operands of this type."""
        if dtype_name not in _CUBE_DTYPES:
            raise ValueError(f"the cube does not multiply {dtype_name!r}: {', '.join(_CUBE_DTYPES)}")
        macs: int = getattr(self.cube, f"{_CUBE_DTYPES[dtype_name]}_macs_per_cycle")
        return macs

    @cached_property
    def content_hash(self) -> str:
        """Equal for two files that describe the same machine, however they are written or described."""
        content = {key: value for key, value in self.to_dict().items() if key != "description"}
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The chip as the TOML file has it: plain tables, integers and strings."""
        tables: dict[str, Any] = _plain(self)
        if self.alike == 1:
            del tables["alike"]
        return tables

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> Chip:
        """The inverse of :meth:`to_dict`, for tables that the schema has already accepted."""
        values = dict(tables)
        for name, kind in _TABLES.items():
            values[name] = kind(**values[name])
        vector = dict(tables["vector"])
        vector["banks"] = Banks(**vector["banks"])
        values["vector"] = Vector(**vector)
        values["path"] = MappingProxyType({name: Path_(**tables["path"][name]) for name in sorted(tables["path"])})
        return cls(**values)

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __reduce__(self) -> tuple[Callable[..., Chip], tuple[dict[str, Any]]]:
        return Chip.from_dict, (self.to_dict(),)  # a read-only mapping cannot be pickled for worker processes


_TABLES: dict[str, type[Any]] = {
    "memory": Memory,
    "queues": Queues,
    "scalar": Scalar,
    "sync": Sync,
    "cube": Cube,
    "bandwidth": Bandwidth,
    "transfer": Transfer,
}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
