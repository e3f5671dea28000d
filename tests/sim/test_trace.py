"""A trace is valid, complete, and tells the same times as the run."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.isa.dtypes import Queue
from compiler.sim.occupancy import occupancies
from compiler.sim.simulator import Run
from compiler.sim.trace import CHIP_PROCESS, CORE_THREAD, KERNEL_THREAD, Written, flow, write_trace
from tests.sim import sample

PHASES = {"M", "X", "C", "s", "f", "i"}


@pytest.fixture(scope="module")
def run() -> Run:
    return sample.run()


def traced(run: Run, **options: int) -> tuple[dict[str, Any], Written]:
    text = io.StringIO()
    written = write_trace(run, text, **options)
    return json.loads(text.getvalue()), written


def slices(trace: dict[str, Any], queue: Queue | None = None) -> list[dict[str, Any]]:
    found = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] < CORE_THREAD]
    return [e for e in found if queue is None or e["tid"] == queue]


def last_end(trace: dict[str, Any]) -> int:
    return max(e["ts"] + e.get("dur", 0) for e in trace["traceEvents"] if "ts" in e)


def test_the_last_event_ends_when_the_run_does(run: Run) -> None:
    trace, _ = traced(run)
    assert last_end(trace) == run.cycles == trace["otherData"]["cycles"]
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == CORE_THREAD]
    assert [(e["pid"], e["ts"], e["dur"]) for e in spans] == [
        (core, 0, finish) for core, finish in enumerate(run.schedule.finished_at.tolist())
    ]


def test_every_instruction_is_a_slice_of_its_queue(run: Run) -> None:
    trace, written = traced(run)
    assert len(slices(trace)) == run.stream.size == written.instructions
    assert not written.note
    expected = sorted(
        (run.stream.core_of(i), int(run.classes.queue[run.stream.klass[i]]), int(run.schedule.start[i]),
         int(run.schedule.end[i] - run.schedule.start[i]))
        for i in range(run.stream.size)
    )  # fmt: skip
    assert sorted((e["pid"], e["tid"], e["ts"], e["dur"]) for e in slices(trace)) == expected


def test_slices_of_a_thread_do_not_overlap(run: Run) -> None:
    ends: dict[tuple[int, int], int] = {}
    trace, _ = traced(run)
    for e in sorted(slices(trace), key=lambda e: (e["ts"], e["ts"] + e["dur"])):
        place = (e["pid"], e["tid"])
        assert e["ts"] >= ends.get(place, 0)
        ends[place] = e["ts"] + e["dur"]


def test_times_are_whole_cycles_and_phases_are_known(run: Run) -> None:
    trace, _ = traced(run)
    assert "1 cycle" in trace["otherData"]["time_unit"]
    for e in trace["traceEvents"]:
        assert e["ph"] in PHASES
        assert all(type(e[key]) is int for key in ("ts", "dur", "pid", "tid") if key in e)


def test_a_slice_says_what_and_where(run: Run) -> None:
    trace, _ = traced(run)
    load = min(slices(trace, Queue.MTE2), key=lambda e: (e["pid"], e["name"] != "ld.ddr.ub.fp32.1d", e["ts"]))
    assert load["name"] == "ld.ddr.ub.fp32.1d"
    assert load["cat"] == "load"
    assert load["args"]["text"] == "ld.ddr.ub.fp32.1d [0; 1], [x2; 1], <256>"
    line = sample.SOURCE.splitlines()[load["args"]["line"] - 1]
    assert line.strip().startswith("ld.ddr.ub")
    assert load["args"]["bytes"] == 1024
    assert load["args"]["complete"] == load["ts"] + load["dur"] + run.chip.path["ddr_ub"].latency_cycles


def test_waits_are_explained(run: Run) -> None:
    trace, _ = traced(run)
    for e in slices(trace):
        if "waited_cycles" in e["args"]:
            assert e["args"]["waited_for"] in ("flag", "barrier", "dispatch")
            assert 0 < e["args"]["waited_cycles"] <= e["ts"]
    # What flags cost a queue by the trace is at least what the simulator charges for them alone.
    for queue in (Queue.V, Queue.MTE3):
        waited = sum(
            e["args"].get("waited_cycles", 0) for e in slices(trace, queue) if e["args"].get("waited_for") == "flag"
        )
        assert waited >= run.schedule.stalled[:, queue, 1].sum()
    slowed = sum(e["args"].get("bandwidth_cycles", 0) for e in slices(trace))
    assert slowed == run.schedule.stalled[:, :, 3].sum() > 0


def test_arrows_lead_from_a_flag_s_set_to_its_wait(run: Run) -> None:
    trace, _ = traced(run)
    starts = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "f"}
    assert set(starts) == set(ends)
    assert len(starts) == sum(e["name"].startswith("set_flag") for e in slices(trace))
    for number, begin in starts.items():
        assert begin["pid"] == ends[number]["pid"]
        assert begin["ts"] < ends[number]["ts"]


def test_counters_follow_the_occupancy(run: Run) -> None:
    trace, _ = traced(run)
    for one in occupancies(run):
        counted = [
            e["args"]["bytes"] for e in trace["traceEvents"]
            if e["ph"] == "C" and e["name"] == f"{one.memory} live" and e["pid"] == one.owner
        ]  # fmt: skip
        assert max(counted, default=0) == one.peak_bytes
        if counted:
            assert counted[-1] == 0


def test_kernels_follow_each_other_and_are_called_by_their_nodes(run: Run) -> None:
    labels = (("k0.first", 0), ("k1.second", len(run.program.instrs) // 2))
    labelled = replace(run, program=replace(run.program, labels=labels))
    text = io.StringIO()
    write_trace(labelled, text, nodes={"k1.second": ("/conv", "/relu")})
    events = json.loads(text.getvalue())["traceEvents"]
    kernels = [e for e in events if e["ph"] == "X" and e["tid"] == KERNEL_THREAD and e["pid"] == 0]
    assert [e["name"] for e in kernels] == ["k0.first", "/conv + /relu"]
    assert kernels[0]["ts"] == 0
    assert kernels[1]["ts"] == kernels[0]["ts"] + kernels[0]["dur"]
    named = {e["args"]["kernel"] for e in events if e["ph"] == "X" and e["tid"] < CORE_THREAD}
    assert named == {"k0.first", "/conv + /relu"}


def test_bandwidth_adds_up_to_the_traffic(run: Run) -> None:
    trace, _ = traced(run)
    points = [
        (e["ts"], e["args"]["bytes/cycle"])
        for e in trace["traceEvents"]
        if e["ph"] == "C" and e["pid"] == CHIP_PROCESS and e["name"] == "ddr bandwidth"
    ]
    moved = sum(rate * (points[i + 1][0] - at) for i, (at, rate) in enumerate(points[:-1]))
    lines = run.classes.line_bytes[run.stream.klass[(run.classes.shares[run.stream.klass] & 1) != 0]]
    assert moved == pytest.approx(int(lines.sum()), rel=1e-3)


def test_a_flow_is_what_passes_between_borders() -> None:
    found = flow(np.array([0, 2]), np.array([4, 3]), np.array([1.0, 5.0]), np.array([0, 2, 4, 6]))
    assert found.tolist() == [2.0, 7.0, 0.0]


def test_what_does_not_fit_is_left_out_and_said(run: Run) -> None:
    trace, written = traced(run, max_events=20)
    assert len(slices(trace)) == 20
    assert written.left_out == run.stream.size - 20
    assert written.note == trace["otherData"]["truncated"]
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == [written.note]
    assert last_end(trace) == run.cycles
    # Before the cut nothing is missing.
    begun = sum(1 for start in run.schedule.start.tolist() if start < written.complete_until)
    assert sum(1 for e in slices(trace) if e["ts"] < written.complete_until) == begun


def test_names_from_the_program_cannot_break_the_file(run: Run) -> None:
    trace, _ = traced(run)
    assert trace["otherData"]["program"] == 'scale "<&'
    text = io.StringIO()
    write_trace(run, text)
    assert text.getvalue().isascii()


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    texts = []
    for each in (run, sample.run()):
        text = io.StringIO()
        write_trace(each, text)
        texts.append(text.getvalue())
    assert texts[0] == texts[1]


def test_a_program_that_does_nothing() -> None:
    nothing = sample.run(".chip tiny\n.cores 1\nhalt\n")
    trace, written = traced(nothing)
    assert written.instructions == 0
    assert last_end(trace) == nothing.cycles
