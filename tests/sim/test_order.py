"""The order check: every kind of hazard has a smallest program that shows it, and a twin that is synchronised."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import HazardError
from compiler.isa.assembler import assemble
from compiler.sim import shadow
from compiler.sim.shadow import CHUNK
from compiler.sim.simulator import simulate
from compiler.target import load_chip

TINY = load_chip("tiny")
DATA = np.arange(64, dtype=np.float32)

FRAME = """
.cores {cores}
.input x ddr fp32 64
.output y ddr fp32 64
.buffer z ddr fp32 64
"""
LOAD = "ld.ddr.ub.fp32.1d [0; 1], [x; 1], <64>"
STORE = "st.ddr.fp32.1d [y; 1], [0; 1], <64>"
FLAG = "set_flag.{0}.{1} 0\nwait_flag.{0}.{1} 0"
ONLY_CORE = "getsr.core x1\nbne x1, {0}, else\n{1}\njmp done\nelse:\n{2}\ndone: halt"


def flag(source: str, target: str) -> str:
    return FLAG.format(source, target)


def messages(body: str, cores: int = 1, seed: int = 0) -> list[str]:
    """What the hazard checker reports; halts are added where the body has none."""
    text = FRAME.format(cores=cores) + body + ("" if "halt" in body else "\nhalt")
    run = simulate(assemble(text, chip=TINY), TINY, {"x": DATA}, hazards=True, seed=seed)
    return [problem.message for problem in run.hazards]


def lines(*parts: str) -> str:
    return "\n".join(parts)


# (what is reported, the hazard, the twin that is right)
ON_ONE_CORE = {
    "read after write": (
        "read-after-write race",
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", STORE),
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", flag("v", "mte3"), STORE),
    ),
    # Where the simulated time takes the reader first, it is the writer that comes too late.
    "read before the write it needs": (
        "uninitialised read|write-after-read race",
        lines(LOAD, "vadds.fp32.1d [256; 1], [0; 1], 1.0, <64>"),
        lines(LOAD, flag("mte2", "v"), "vadds.fp32.1d [256; 1], [0; 1], 1.0, <64>"),
    ),
    "write after read": (
        "write-after-read race|read-after-write race",
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", flag("v", "mte3"), STORE, "vdup.fp32.1d [0; 1], 2.0, <64>"),
        lines(
            "vdup.fp32.1d [0; 1], 1.0, <64>", flag("v", "mte3"), STORE, flag("mte3", "v"),
            "vdup.fp32.1d [0; 1], 2.0, <64>",
        ),
    ),
    "write after write": (
        "write-after-write race",
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", LOAD),
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", flag("v", "mte2"), LOAD),
    ),
    "one queue of copies": (
        "read-after-write race",
        lines("ld.ddr.llb.fp32.1d [w; 1], [x; 1], <64>", "ld.llb.ub.fp32.1d [0; 1], [w; 1], <64>"),
        lines(
            "ld.ddr.llb.fp32.1d [w; 1], [x; 1], <64>", "pipe_barrier.mte2", "ld.llb.ub.fp32.1d [0; 1], [w; 1], <64>"
        ),
    ),
    "the fixpipe's own queue": (
        "write-after-write race",
        lines("mfill.fp32 [0], <16, 16>, 1.0", flag("m", "fix"),
              *["fix.ub.nd.fp32.fp32.none [0], [0], <16, 16>, 16, 16"] * 2),
        lines("mfill.fp32 [0], <16, 16>, 1.0", flag("m", "fix"),
              "fix.ub.nd.fp32.fp32.none [0], [0], <16, 16>, 16, 16", "pipe_barrier.fix",
              "fix.ub.nd.fp32.fp32.none [0], [0], <16, 16>, 16, 16"),
    ),
    "scalar load": (
        "uninitialised read|write-after-read race|scalar loads read other values than in program order",
        lines(LOAD, "sld.ub.int32 x2, [0]"),
        lines(LOAD, flag("mte2", "s"), "sld.ub.int32 x2, [0]"),
    ),
    "scalar store over what is read": (
        "write-after-read race|write-after-write race|read-after-write race",
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", flag("v", "mte3"), STORE, "sst.ub.int32 [0], 5"),
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", flag("v", "mte3"), STORE, flag("mte3", "s"), "sst.ub.int32 [0], 5"),
    ),
    "uninitialised read of what the same instruction writes": (
        "uninitialised read",
        lines("vadds.fp32.1d [0; 1], [0; 1], 1.0, <64>"),
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", "vadds.fp32.1d [0; 1], [0; 1], 1.0, <64>"),
    ),
    "nothing written": (
        "uninitialised read",
        "vadds.fp32.1d [256; 1], [0; 1], 1.0, <64>",
        lines("vdup.fp32.1d [0; 1], 1.0, <64>", "vadds.fp32.1d [256; 1], [0; 1], 1.0, <64>"),
    ),
    "a block of which a part is written": (
        "uninitialised read",
        lines("vdup.fp32.1d [0; 1], 1.0, <63>", "vadds.fp32.1d [256; 1], [0; 1], 1.0, <64>"),
        lines("vdup.fp32.1d [0; 1], 1.0, <63>", "vadds.fp32.1d [256; 1], [0; 1], 1.0, <63>"),
    ),
    "the head of a block": (
        "uninitialised read",
        lines("vdup.fp16.1d [2; 1], 1.0, <30>", "vadds.fp16.1d [256; 1], [0; 1], 1.0, <30>"),
        lines("vdup.fp16.1d [2; 1], 1.0, <30>", "vadds.fp16.1d [256; 1], [2; 1], 1.0, <30>"),
    ),
    "gaps between strided elements": (
        "uninitialised read",
        lines("vdup.fp32.1d [0; 2], 1.0, <32>", "vadds.fp32.1d [256; 1], [0; 1], 1.0, <32>"),
        lines("vdup.fp32.1d [0; 2], 1.0, <32>", "vadds.fp32.1d [256; 1], [0; 2], 1.0, <32>"),
    ),
    "a buffer of the program's own": (
        "uninitialised read",
        "ld.ddr.ub.fp32.1d [0; 1], [z; 1], <64>",
        "ld.ddr.ub.fp32.1d [0; 1], [x; 1], <64>",
    ),
    "a flag that nobody waits for": (
        "leaked flag",
        lines(LOAD, "set_flag.mte2.v 0", "set_flag.mte2.v 1", "wait_flag.mte2.v 0"),
        lines(LOAD, "set_flag.mte2.v 0", "set_flag.mte2.v 1", "wait_flag.mte2.v 0", "wait_flag.mte2.v 1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_ONE_CORE)
@pytest.mark.parametrize("seed", [0, 7])
def test_a_hazard_on_one_core_is_found_and_its_twin_is_clean(name: str, seed: int) -> None:
    kind, wrong, right = ON_ONE_CORE[name]
    frame = ".buffer w llb fp32 64\n"
    found = messages(frame + wrong, seed=seed)
    assert found and (seed or {message.partition(":")[0] for message in found} <= set(kind.split("|"))), found
    assert messages(frame + right, seed=seed) == []


def test_a_flag_that_only_time_keeps_from_being_doubled_is_found() -> None:
    """The scalar unit waits for a store, which is later than V's wait; yet nothing says that it always is."""
    add = "vadds.fp32.1d [256; 1], [0; 1], 1.0, <64>"
    begin = lines(LOAD, flag("mte2", "mte3"), STORE, flag("mte2", "v"))
    later, again = flag("mte3", "s"), lines(flag("mte2", "v"), add)
    found = messages(lines(begin, later, again))
    assert [message.partition(":")[0] for message in found] == ["doubled flag"]
    assert messages(lines(begin, later, flag("v", "mte2"), again)) == []


@pytest.mark.parametrize("source", ["v", "m", "mte1", "mte2", "mte3", "fix"])
@pytest.mark.parametrize("way", ["barrier_all", "by way of the scalar unit"])
def test_what_the_scalar_unit_waited_for_is_known_to_what_it_dispatches(source: str, way: str) -> None:
    sync = "barrier_all" if way == "barrier_all" else flag(source, "s")
    writers = {
        "v": "vdup.fp32.1d [0; 1], 1.0, <64>",
        "m": "mfill.fp32 [0], <16, 4>, 1.0",
        "mte1": "filll1.fp32.1d [0; 1], <64>, 1.0",
        "mte2": LOAD,
        "mte3": lines("vdup.fp32.1d [512; 1], 1.0, <64>", flag("v", "mte3"), "st.ddr.fp32.1d [z; 1], [512; 1], <64>"),
        "fix": lines(
            "mfill.fp32 [0], <16, 4>, 1.0", flag("m", "fix"), "fix.ub.nd.fp32.fp32.none [0], [0], <16, 4>, 16, 4"
        ),
    }
    readers = {
        "v": STORE,
        "m": "fix.ub.nd.fp32.fp32.none [0], [0], <16, 4>, 16, 4",
        "mte1": "st.l1.fp32.1d [0; 1], [512; 1], <64>",
        "mte2": STORE,
        "mte3": "ld.ddr.ub.fp32.1d [0; 1], [z; 1], <64>",
        "fix": "st.ddr.fp32.1d [y; 1], [0; 1], <64>",
    }
    before = lines("vdup.fp32.1d [512; 1], 1.0, <64>", "barrier_all", writers[source])
    assert messages(lines(before, sync, readers[source])) == []
    assert messages(lines(before, readers[source])) != []


def test_a_race_names_both_instructions_and_what_is_missing() -> None:
    text = FRAME.format(cores=1) + lines(LOAD, STORE, "halt")
    (race,) = simulate(assemble(text, chip=TINY), TINY, {"x": DATA}, hazards=True).hazards
    assert race.message == (
        "read-after-write race: st.ddr.fp32.1d (instruction 1, line 7, core 0) is not ordered after "
        "ld.ddr.ub.fp32.1d (instruction 0, line 6, core 0) at ub address 0"
    )
    assert race.hint == "set_flag.mte2.mte3 after the first, wait_flag.mte2.mte3 before the second"
    assert race.place is not None and race.place.line == 7


# ---- between cores --------------------------------------------------------------------------------------------

HALF_LOAD = "vdup.fp32.1d [0; 1], 1.0, <64>\nset_flag.v.mte3 0\nwait_flag.v.mte3 0\nst.ddr.fp32.1d [z; 1], [0; 1], <64>"
TAKE = "ld.ddr.ub.fp32.1d [0; 1], [z; 1], <64>"
REUSE = "st.ddr.fp32.1d [z; 1], [0; 1], <64>"


def two_cores(first: str, second: str, both: str = "nop") -> str:
    return lines(both, ONLY_CORE.format(0, first, second))


BETWEEN_CORES = {
    "read after write": (
        ["read-after-write race"],
        two_cores(HALF_LOAD, TAKE),
        two_cores(lines(HALF_LOAD, "core_barrier"), lines("core_barrier", TAKE)),
    ),
    "read after write by flags": (
        ["read-after-write race"],
        two_cores(lines(HALF_LOAD, "cross_set.mte2 1, 0"), lines("cross_wait.mte2 0, 0", TAKE)),
        two_cores(lines(HALF_LOAD, "cross_set.mte3 1, 0"), lines("cross_wait.mte2 0, 0", TAKE)),
    ),
    "write after read": (
        ["write-after-read race", "write-after-write race", "read-after-write race"],
        two_cores(lines(HALF_LOAD, "cross_set.mte3 1, 0", REUSE), lines("cross_wait.mte2 0, 0", TAKE)),
        two_cores(
            lines(HALF_LOAD, "cross_set.mte3 1, 0", "cross_wait.mte3 1, 1", REUSE),
            lines("cross_wait.mte2 0, 0", TAKE, "cross_set.mte2 0, 1"),
        ),
    ),
    "write after write": (
        ["write-after-write race"],
        two_cores(HALF_LOAD, HALF_LOAD),
        two_cores(lines(HALF_LOAD, "cluster_barrier"), lines("cluster_barrier", HALF_LOAD)),
    ),
    "read after write by flags in a cluster": (
        ["read-after-write race"],
        two_cores(lines(HALF_LOAD, "cluster_set.mte2 1, 0"), lines("cluster_wait.mte2 0, 0", TAKE)),
        two_cores(lines(HALF_LOAD, "cluster_set.mte3 1, 0"), lines("cluster_wait.mte2 0, 0", TAKE)),
    ),
    "cross flags from two queues": (
        ["unordered cross-core flag"],
        two_cores(lines("cross_set.v 1, 0", "cross_set.mte2 1, 0"), lines("cross_wait.v 0, 0", "cross_wait.v 0, 0")),
        two_cores(
            lines("cross_set.v 1, 0", flag("v", "mte2"), "cross_set.mte2 1, 0"),
            lines("cross_wait.v 0, 0", "cross_wait.v 0, 0"),
        ),
    ),
    "cross waits in two queues": (
        ["unordered cross-core flag"],
        two_cores(lines("cross_set.v 1, 0", "cross_set.v 1, 0"), lines("cross_wait.v 0, 0", "cross_wait.mte2 0, 0")),
        two_cores(
            lines("cross_set.v 1, 0", "cross_set.v 1, 0"),
            lines("cross_wait.v 0, 0", flag("v", "mte2"), "cross_wait.mte2 0, 0"),
        ),
    ),
    "a cross flag that nobody takes": (
        ["leaked flag"],
        two_cores("cross_set.v 1, 0", "nop"),
        two_cores("cross_set.v 1, 0", "cross_wait.v 0, 0"),
    ),
}


@pytest.mark.parametrize("name", BETWEEN_CORES)
@pytest.mark.parametrize("seed", [0, 3])
def test_a_hazard_between_cores_is_found_and_its_twin_is_clean(name: str, seed: int) -> None:
    kinds, wrong, right = BETWEEN_CORES[name]
    found = messages(wrong, cores=2, seed=seed)
    assert found and all(message.startswith(tuple(kinds)) for message in found), found
    assert messages(right, cores=2, seed=seed) == []


def test_cores_that_write_their_own_parts_of_a_line_do_not_race() -> None:
    body = """
    getsr.core x1
    vdup.fp32.1d [0; 1], 1.0, <3>
    barrier_all
    smadd x2, x1, {0}, y
    st.ddr.fp32.1d [x2; 1], [0; 1], <3>
    """
    assert messages(body.format(12), cores=2) == []
    assert messages(body.format(8), cores=2) != []


def test_memory_grows_with_what_is_read_not_with_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores read a buffer of 256 KiB from its beginning to its end, but only four bytes of every four thousand."""
    blocks, read = (1 << 18) // 4, 2 * 64 * CHUNK
    monkeypatch.setattr(shadow, "MAX_SHADOW_BYTES", 8 * blocks + 4 * 2 * read)
    body = """
    .buffer w ddr fp32 65536
    vdup.fp32.1d [0; 1], 1.0, <64>
    set_flag.v.mte3 0
    wait_flag.v.mte3 0
    getsr.core x1
    smadd x2, x1, 131072, w
    st.ddr.fp32.2d [x2; 512, 1], [0; 1, 1], <64, 1>
    {0}
    ld.ddr.ub.fp32.2d [256; 1, 1], [w; 1024, 1], <64, 1>
    """
    assert messages(body.format("core_barrier"), cores=2) == []
    assert messages(body.format(""), cores=2) != []


# ---- runs that do not end -------------------------------------------------------------------------------------


def stuck(body: str, cores: int = 1) -> list[str]:
    text = FRAME.format(cores=cores) + body + ("" if "halt" in body else "\nhalt")
    with pytest.raises(HazardError) as error:
        simulate(assemble(text, chip=TINY), TINY)
    return [problem.message for problem in error.value.problems]


def test_two_queues_that_wait_for_each_other_are_shown_as_a_cycle() -> None:
    first, *others = stuck("wait_flag.v.mte2 0\nset_flag.mte2.v 0\nwait_flag.mte2.v 0\nset_flag.v.mte2 0")
    assert first == "deadlock: a cycle of waiters: core 0 V -> core 0 MTE2 -> core 0 V"
    assert "core 0 queue MTE2 stands at wait_flag.v.mte2" in "\n".join(others)
    assert "flag 0 from V is not set" in "\n".join(others)


def test_a_core_that_misses_the_barrier_is_named() -> None:
    found = "\n".join(stuck(two_cores("core_barrier", "nop"), cores=2))
    assert "core 0 queue S stands at core_barrier" in found
    assert "other cores do not arrive: [1]" in found


def test_cores_that_wait_for_each_others_flags_are_shown_as_a_cycle() -> None:
    first, *_ = stuck(two_cores("cross_wait.v 1, 0\ncross_set.v 1, 0", "cross_wait.v 0, 0\ncross_set.v 0, 0"), cores=2)
    assert first.startswith("deadlock:")


def test_a_flag_set_twice_in_time_ends_the_run() -> None:
    (found,) = stuck("set_flag.mte2.v 0\nset_flag.mte2.v 0\nwait_flag.mte2.v 0\nwait_flag.mte2.v 0")
    assert found.startswith("doubled flag: set_flag.mte2.v")


def test_more_cross_flags_than_may_be_pending_end_the_run() -> None:
    sets = "\n".join(["cross_set.v 1, 0"] * (TINY.cross_flag_max + 1))
    waits = "\n".join(["nop"] * 200 + ["cross_wait.v 0, 0"] * (TINY.cross_flag_max + 1))
    (found,) = stuck(two_cores(sets, waits), cores=2)
    assert f"would pend more than {TINY.cross_flag_max} times" in found
