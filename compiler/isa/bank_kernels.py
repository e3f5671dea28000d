"""The loop of the bank model: repeat by repeat, which rows every bank group must serve."""

from __future__ import annotations

import numpy as np

from compiler.isa.jit import kernel


@kernel
def repeat_millicycles(  # type: ignore[no-untyped-def]
    block, repeat, first, reads, writes, start, blocks, repeats,
    groups, bank_shift, slope, per_read, per_write, per_clash,
):  # fmt: skip
    """(all millicycles, those lost to conflicts). Operand ``o`` touches ``block[first[o]:first[o + 1]]``, counted from
    ``start[o]``, each in the repeat beside it, in order of repeats; one that stands again in the same repeat is the
    same access. Operands that reach past the memory's ``blocks`` are refused once they are costed: here they must not
    reach past the tables."""
    operands = len(first) - 1
    at = first[:operands].copy()
    read_rows, write_rows = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    table = 64
    while table < 4 * (len(block) // repeats + 64):
        table *= 2
    seen_block = np.full((2, table), -1, np.int64)
    seen_repeat = np.full((2, table), -1, np.int64)
    banks = ((blocks - 1) >> bank_shift) + 1
    written_in = np.full(banks * groups, -2, np.int64)  # the last repeat that wrote each bank of each group
    writing_in = np.full(banks * groups, -2, np.int64)
    total, lost = np.int64(0), np.int64(0)
    for r in range(repeats):
        read_rows[:] = 0
        write_rows[:] = 0
        clash = False
        for o in range(operands):
            end = first[o + 1]
            while at[o] < end and repeat[at[o]] == r:
                b = (start[o] + block[at[o]]) % blocks
                at[o] += 1
                group = b % groups
                bank = (b >> bank_shift) * groups + group
                for side in range(2):
                    if (side == 0 and not reads[o]) or (side == 1 and not writes[o]):
                        continue
                    slot = b & (table - 1)
                    while seen_repeat[side, slot] == r and seen_block[side, slot] != b:
                        slot = (slot + 1) & (table - 1)
                    if seen_repeat[side, slot] == r:
                        continue
                    seen_repeat[side, slot] = r
                    seen_block[side, slot] = b
                    if side == 0:
                        read_rows[group] += 1
                        clash = clash or written_in[bank] == r - 1 or writing_in[bank] == r - 1
                    else:
                        write_rows[group] += 1
                        # Two places, since a bank may be written again before this repeat's reads have been seen.
                        if writing_in[bank] != r:
                            written_in[bank] = writing_in[bank]
                            writing_in[bank] = r
        extra = max(np.int64(0), (read_rows.max() - 1) * per_read, (write_rows.max() - 1) * per_write)
        if clash:
            extra += per_clash
        # A slope above one leaves cycles in which a second row can be fetched: only what exceeds it is lost.
        cost = max(slope * 1000, 1000 + extra)
        total += cost
        lost += cost - slope * 1000
    return total, lost
