"""One program for several clusters of a chip, or for one of them, each on its own part of the data.

Kernels are compiled and linked for a chip that is one cluster. What they say of cores and of each other is then said
of the cores of their own cluster, and what each cluster has of its own is found by the cluster's number:

    getsr.core x1              ->    getsr.core_in_cluster x1
    core_barrier               ->    cluster_barrier
    cross_set.mte3 x1, 0       ->    cluster_set.mte3 x1, 0
    cross_wait.mte2 3, 0       ->    cluster_wait.mte2 3, 0
    getsr.cores x1             ->    getsr.cores_per_cluster x1
    getsr.cluster x1           ->    smov x1, 0
    getsr.clusters x1          ->    smov x1, 1

No instruction is added, so that branches lead where they did. Addresses in LLB are those of the cluster's LLB already;
of addresses in DDR each cluster has its own where the linker says so (`ldtc`).
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler.isa.model import Instr
from compiler.isa.table import by_mnemonic

_OTHER_ROW = {"core_barrier": "cluster_barrier", "cross_set": "cluster_set", "cross_wait": "cluster_wait"}
_OTHER_REGISTER = {"core": "core_in_cluster", "cores": "cores_per_cluster"}
_KNOWN = {"cluster": 0, "clusters": 1}


def on_every_cluster(instrs: Iterable[Instr]) -> list[Instr]:
    """What the cores of a chip of one cluster do, done by the cores of each of a larger one."""
    return [_in_cluster(instr) for instr in instrs]


def _in_cluster(instr: Instr) -> Instr:
    other = _OTHER_ROW.get(instr.row.mnemonic)
    if other is not None:
        return Instr(by_mnemonic()[other], instr.mods, instr.values)
    if instr.row.kind != "getsr":
        return instr
    (register,) = instr.mods
    if register in _KNOWN:
        return Instr(by_mnemonic()["smov"], (), (instr.values[0], _KNOWN[register]))
    return Instr(instr.row, (_OTHER_REGISTER.get(register, register),), instr.values)
