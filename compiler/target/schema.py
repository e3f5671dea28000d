"""What a chip file may say, as data: the keys, the paths and the rules between keys.

Validation (:mod:`compiler.target.check`), ``tilewright chips --schema`` and the documentation are readers of
:data:`KEYS`, :data:`PATHS`, :data:`PATH_KEYS` and :data:`RULES`. A rule is a function of the values it names; its
docstring is the diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
MAX_CORES = 1024


@dataclass(frozen=True)
class Key:
    """One key: its dotted name, what it means, and the values it may have."""

    name: str
    doc: str
    low: int = 0
    high: int = 0
    power_of_two: bool = False
    multiple_of: int = 1
    pattern: str = ""  # a string key, and what it must match

    @property
    def type(self) -> type:
        return str if self.pattern else int

    @property
    def allowed(self) -> str:
        if self.pattern:
            return f"{self.low} to {self.high} printable characters matching {self.pattern}"
        words = [f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"]
        words += ["a power of two"] if self.power_of_two else []
        words += [f"a multiple of {self.multiple_of}"] if self.multiple_of > 1 else []
        return ", ".join(words)

    def fault(self, value: object) -> tuple[str, str] | None:
        """The code and the text of what is wrong with ``value``, or None."""
        if type(value) is not self.type:  # not isinstance: TOML's true is not 1
            wanted = "a string" if self.pattern else "an integer"
            return "TW1112", f"must be {wanted} ({self.allowed}), not {describe(value)}"
        if isinstance(value, str):
            good = self.low <= len(value) <= self.high and value.isprintable() and re.fullmatch(self.pattern, value)
            return None if good else ("TW1113", f"must be {self.allowed}, not {describe(value)}")
        if not isinstance(value, int) or not self.low <= value <= self.high:
            return "TW1113", f"must be {self.allowed}, not {describe(value)}"
        if (self.power_of_two and value & (value - 1)) or value % self.multiple_of:
            return "TW1114", f"must be {self.allowed}, not {describe(value)}"
        return None


# Upper bounds leave room above real parts, and keep every product the simulator forms inside 64 bits.
KEYS: tuple[Key, ...] = (
    Key("schema_version", "version of this table of keys", 1, 1),
    Key("name", "what the chip is called in reports and artifacts", 1, 32, pattern="[a-z][a-z0-9_-]*"),
    Key("description", "one line for people; not part of the content hash", 0, 200, pattern=".*"),
    Key("clock_mhz", "core clock", 1, 10_000),
    Key("clusters", "groups of cores that share an LLB", 1, MAX_CORES),
    Key("cores_per_cluster", "cores in a cluster", 1, MAX_CORES),
    Key("event_ids", "flags per ordered pair of queues", 1, 64),
    Key("cross_flag_ids", "flags per ordered pair of cores", 1, 64),
    Key("cross_flag_max", "sets that may be pending on one cross-core flag", 1, 255),
    Key("block_bytes", "unit of vector access and of bank conflicts", 16, 512, power_of_two=True),
    Key("memory.ddr_bytes", "DDR or HBM of the chip", MIB, TIB, multiple_of=4096),
    Key("memory.llb_bytes", "last-level buffer per cluster", 512, 4 * GIB, multiple_of=512),
    Key("memory.l1_bytes", "L1 per core", 4 * KIB, 64 * MIB, multiple_of=512),
    Key("memory.l0a_bytes", "left cube operand per core, in 512-byte fractals", 512, 16 * MIB, multiple_of=512),
    Key("memory.l0b_bytes", "right cube operand per core, in 512-byte fractals", 512, 16 * MIB, multiple_of=512),
    Key("memory.l0c_bytes", "cube result per core, in 1024-byte fractals", 1024, 16 * MIB, multiple_of=1024),
    Key("memory.ub_bytes", "vector operands and results per core", KIB, 64 * MIB, multiple_of=512),
    Key("memory.bt_bytes", "bias table per core; 0: none", 0, MIB, multiple_of=64),
    Key("memory.fb_bytes", "fixpipe parameters per core; 0: none", 0, MIB, multiple_of=64),
    Key("queues.depth", "instructions that may wait in a queue before the scalar unit stalls", 1, 1024),
    Key("scalar.issue_cycles", "cycles to execute or dispatch an instruction", 1, 1000),
    Key("scalar.branch_taken_cycles", "further cycles of a taken branch", 0, 1000),
    Key("scalar.load_cycles", "cycles of a load of tiling data", 1, 100_000),
    Key("scalar.memory_cycles", "cycles of a scalar access to UB", 1, 100_000),
    Key("scalar.memory_far_cycles", "cycles of a scalar access to LLB or DDR", 1, 100_000),
    Key("sync.flag_cycles", "cycles of set_flag and wait_flag once the flag is there", 0, 100_000),
    Key("sync.barrier_cycles", "cycles of pipe_barrier after the queue has drained", 0, 100_000),
    Key("sync.core_barrier_cycles", "cycles of a barrier between cores after the last arrives", 0, 1_000_000),
    Key("sync.cross_flag_cycles", "cycles from setting a cross-core flag to its being seen", 0, 1_000_000),
    Key("vector.bytes_per_cycle", "bytes that a vector instruction computes per cycle (one repeat)", 16, 8192),
    Key("vector.head_cycles", "cycles before the first repeat", 0, 10_000),
    Key("vector.tail_cycles", "cycles from the last repeat to a consumer", 0, 10_000),
    Key("vector.banks.groups", "bank groups: (address >> group_shift) mod groups", 1, 1024, power_of_two=True),
    Key("vector.banks.group_shift", "first address bit of the group", 4, 9),
    Key("vector.banks.banks", "banks: address >> bank_shift", 1, 1024),
    Key("vector.banks.bank_shift", "first address bit of the bank", 4, 26),
    Key("vector.banks.same_group_read_millicycles",
        "for each further row that a group must read in the same repeat", 0, 1_000_000),
    Key("vector.banks.same_group_write_millicycles",
        "for each further row that a group must write in the same repeat", 0, 1_000_000),
    Key("vector.banks.same_bank_read_write_millicycles",
        "for a repeat that reads the bank that the repeat before it writes", 0, 1_000_000),
    Key("cube.overhead_cycles", "cycles of a multiply beyond its MACs", 0, 10_000),
    Key("cube.fp16_macs_per_cycle", "fp16 multiply-accumulates per cycle and core", 1, 1 << 20),
    Key("cube.bf16_macs_per_cycle", "bf16 multiply-accumulates per cycle and core", 1, 1 << 20),
    Key("cube.fp32_macs_per_cycle", "fp32 multiply-accumulates per cycle and core", 1, 1 << 20),
    Key("cube.int8_macs_per_cycle", "int8 multiply-accumulates per cycle and core", 1, 1 << 20),
    Key("bandwidth.ddr_bytes_per_kilocycle", "DDR bandwidth that all cores share", 1, 1_000_000_000),
    Key("bandwidth.llb_bytes_per_kilocycle", "LLB bandwidth that the cores of a cluster share", 1, 1_000_000_000),
    Key("transfer.ddr_line_bytes", "what DDR and LLB move at once", 16, 4096, power_of_two=True),
    Key("transfer.ragged_nz_percent",
        "rate of a layout-changing load whose rows are not a multiple of block_bytes", 1, 100),
)  # fmt: skip

# path.<name>.<key>, for every path that the chip has.
PATH_KEYS: tuple[Key, ...] = (
    Key("bytes_per_cycle", "rate for one core, when alone", 1, 65_536),
    Key("latency_cycles", "cycles from the end of the copy to its data being there", 0, 100_000),
    Key("issue_cycles", "the least a copy holds its queue", 1, 100_000),
)


@dataclass(frozen=True)
class PathRow:
    """A way between two memories that a chip may have; the instructions that use it are in the ISA table.

    Those whose name ends in ``s`` lead into every cluster at once.
    """

    name: str
    required: bool = False

    @property
    def memories(self) -> tuple[str, str]:
        source, destination = self.name.split("_")
        return source, destination.removesuffix("s")


PATHS: dict[str, PathRow] = {
    row.name: row
    for row in (
        PathRow("ddr_l1", required=True),
        PathRow("ddr_ub", required=True),
        PathRow("ddr_llb", required=True),
        PathRow("ddr_l1s"),
        PathRow("ddr_llbs"),
        PathRow("llb_l1", required=True),
        PathRow("llb_ub", required=True),
        PathRow("llb_ddr"),
        PathRow("l1_l0a", required=True),
        PathRow("l1_l0b", required=True),
        PathRow("l1_bt"),
        PathRow("l1_fb"),
        PathRow("l1_ub"),
        PathRow("ub_l1"),
        PathRow("ub_ddr", required=True),
        PathRow("ub_llb", required=True),
        PathRow("l0c_ddr"),
        PathRow("l0c_llb"),
        PathRow("l0c_l1"),
        PathRow("l0c_ub", required=True),
    )
}


@dataclass(frozen=True)
class Rule:
    """A condition between keys. ``keys[0]`` is where the error is shown; ``path`` stands for the set of path names."""

    name: str
    keys: tuple[str, ...]
    holds: Callable[..., bool]
    text: str


RULES: list[Rule] = []


def rule(*keys: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    def register(holds: Callable[..., bool]) -> Callable[..., bool]:
        RULES.append(Rule(holds.__name__, keys, holds, " ".join((holds.__doc__ or "").split())))
        return holds

    return register


@rule("clusters", "cores_per_cluster")
def core_count(clusters: int, cores_per_cluster: int) -> bool:
    """clusters * cores_per_cluster must be at most 1024"""
    return clusters * cores_per_cluster <= MAX_CORES


@rule("vector.bytes_per_cycle", "block_bytes")
def vector_blocks(bytes_per_cycle: int, block_bytes: int) -> bool:
    """vector.bytes_per_cycle must be a multiple of block_bytes"""
    return bytes_per_cycle % block_bytes == 0


@rule("vector.banks.group_shift", "block_bytes")
def group_is_block(group_shift: int, block_bytes: int) -> bool:
    """vector.banks.group_shift must be log2(block_bytes): neighbouring blocks lie in neighbouring groups"""
    return 1 << group_shift == block_bytes


@rule("vector.banks.bank_shift", "vector.banks.groups", "vector.banks.group_shift")
def groups_within_bank(bank_shift: int, groups: int, group_shift: int) -> bool:
    """groups << group_shift must be at most 1 << bank_shift: a bank holds a row of every group"""
    return groups << group_shift <= 1 << bank_shift


@rule("vector.banks.banks", "vector.banks.bank_shift", "memory.ub_bytes")
def banks_cover_ub(banks: int, bank_shift: int, ub_bytes: int) -> bool:
    """banks << bank_shift must be at least memory.ub_bytes: every address lies in a bank"""
    return banks << bank_shift >= ub_bytes


@rule("vector.banks.banks", "vector.banks.bank_shift", "memory.ub_bytes")
def no_empty_bank(banks: int, bank_shift: int, ub_bytes: int) -> bool:
    """(banks - 1) << bank_shift must be less than memory.ub_bytes: every bank holds addresses"""
    return (banks - 1) << bank_shift < ub_bytes


@rule("memory.ub_bytes", "vector.banks.groups", "vector.banks.banks", "block_bytes")
def ub_in_bank_rows(ub_bytes: int, groups: int, banks: int, block_bytes: int) -> bool:
    """memory.ub_bytes must be a multiple of groups * banks * block_bytes"""
    return ub_bytes % (groups * banks * block_bytes) == 0


@rule("transfer.ddr_line_bytes", "block_bytes")
def line_in_blocks(ddr_line_bytes: int, block_bytes: int) -> bool:
    """transfer.ddr_line_bytes must be a multiple of block_bytes"""
    return ddr_line_bytes % block_bytes == 0


@rule("memory.bt_bytes", "path")
def bt_exists(bt_bytes: int, path: frozenset[str]) -> bool:
    """a chip with a path to bt needs memory.bt_bytes above 0"""
    return bt_bytes > 0 or not _touching("bt", path)


@rule("memory.fb_bytes", "path")
def fb_exists(fb_bytes: int, path: frozenset[str]) -> bool:
    """a chip with a path to fb needs memory.fb_bytes above 0"""
    return fb_bytes > 0 or not _touching("fb", path)


def _touching(memory: str, path: frozenset[str]) -> list[str]:
    return [name for name in path if memory in PATHS[name].memories]


def describe(value: object) -> str:
    """A value from a TOML file in a message: short, on one line, whatever it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"
