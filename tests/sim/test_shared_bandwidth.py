"""How copies that run at the same time share DDR and LLB."""

from __future__ import annotations

from compiler.isa.assembler import assemble
from compiler.isa.dtypes import Queue
from compiler.sim.simulator import simulate
from compiler.target import load_chip

TW1 = load_chip("tw1")

# In every cluster four cores read LLB and four copy DDR to LLB, which all 16 together may do at 119.4 bytes per cycle.
MIXED = """
    .cores chip.cores
    .input x ddr int8 65536
    .buffer y llb int8 65536
    .buffer z llb int8 [8, 8192]
      getsr.core_in_cluster x1
      bge x1, 4, copy
      ld.llb.l1.int8.1d [0], [y], <56320>
      halt
    copy:
      smadd x1, x1, 8192, z
      ld.ddr.llb.int8.1d [x1], [x], <8192>
      halt
"""


def test_a_copy_that_ddr_slows_leaves_llb_to_the_others() -> None:
    run = simulate(assemble(MIXED, chip=TW1), TW1)
    alone = 56320 // TW1.path["llb_l1"].bytes_per_cycle
    limit = TW1.bandwidth.llb_bytes_per_kilocycle
    assert 4 * TW1.path["llb_l1"].bytes_per_cycle * 1000 + TW1.bandwidth.ddr_bytes_per_kilocycle // 4 < limit
    cores = [core for core in range(TW1.cores) if core % TW1.cores_per_cluster < 4]
    mte2 = run.schedule.end[run.stream.core_start[cores]] - run.schedule.start[run.stream.core_start[cores]]
    assert run.classes.queue[run.stream.klass[run.stream.core_start[cores]]].tolist() == [Queue.MTE2] * len(cores)
    assert mte2.max() <= alone + 1
