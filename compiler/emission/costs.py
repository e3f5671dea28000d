"""What one instruction costs on a chip, by its row's own rules and timing, with numbers standing for its operands."""

from __future__ import annotations

from functools import lru_cache

from compiler.isa.model import Instr, bind, counting_faults
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

# What the scalar unit adds to an instruction in a loop: addresses, loop counter, dispatch. With constant operands
# alone it only dispatches.
LOOP_OVERHEAD_CYCLES = 6
DISPATCH_CYCLES = 2


@lru_cache(maxsize=65536)
def instruction_cycles(mnemonic: str, mods: tuple[str, ...], values: tuple[int, ...], chip: Chip) -> int | str:
    """Cycles until the result is there, or the rule that the operands break."""
    row = by_mnemonic()[mnemonic]
    for slot, value in zip(row.slots(mods), values, strict=True):
        if slot.kind in ("int", "addr") and not slot.lo <= value <= slot.hi:
            return f"{slot.name} must be in {slot.lo}..{slot.hi}, not {value}"
    args = bind(Instr(row, mods, values), values, chip)
    # Extents are bounds here. Only what is repeated can count more than the memory holds that its buffer lies in.
    if any(0 in view.strides for view in args.views):
        for fault in counting_faults(args):
            return fault
    for rule in row.rules:
        if not rule(args):
            return str(rule.__doc__)
    if row.timing is None:
        return 1
    timing = row.timing(args)
    cycles = timing.cycles
    if timing.path:
        cycles = max(cycles, shared_cycles(timing.path, timing.line_bytes, chip))
    return cycles


def shared_cycles(path: str, line_bytes: int, chip: Chip) -> int:
    """Cycles to move lines over a path whose shared memory all cores use at once."""
    memory = "ddr" if "ddr" in path else "llb"
    rate = chip.bandwidth.ddr_bytes_per_kilocycle if memory == "ddr" else chip.bandwidth.llb_bytes_per_kilocycle
    cores = chip.cores if memory == "ddr" else chip.cores_per_cluster
    return -(-line_bytes * 1000 * cores // rate)
