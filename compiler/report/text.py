"""A report as the text that a person reads after a compilation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler.report.compilation import MemoryPeak, Report
from compiler.report.tables import columns, milliseconds, size_text, some

if TYPE_CHECKING:
    from compiler.report.profile import Profile

MAX_ROWS = 20
MAX_ROADS = 6
LEAST_BUSY = 0.5  # of the time, or nothing bounds a model but how its work is chained


def summary(report: Report, seconds: float, found: Profile | None = None) -> Iterator[str]:
    """All that was decided and what it costs; ``seconds`` is how long that took, ``found`` how long a run takes."""
    npu, host = len(report.npu_nodes), len(report.host_nodes)
    share = 100 * report.offload_share
    ddr, kernels = report.ddr, len(report.kernels)
    yield f"{report.model} for {report.chip}, precision {report.precision}"
    rows = [
        ("nodes on the chip", f"{npu} of {npu + host} ({share:.1f} %)"),
        ("nodes on the host", f"{host}" if host else "none"),
        ("kernels", f"{kernels}, {report.distinct_kernels} of them distinct{_apart(report)}"),
        ("program", f"{report.instructions:,} instructions, {size_text(report.program_bytes)}"),
        ("constants", size_text(report.constant_bytes)),
        (
            "DDR",
            f"{size_text(ddr.total)} of {size_text(ddr.capacity)}: inputs {size_text(ddr.inputs)}, outputs "
            f"{size_text(ddr.outputs)}, constants {size_text(ddr.constants)}, rest {size_text(ddr.intermediates)}",
        ),
        *_schedule_rows(report),
        *((("on the chip", ", ".join(map(_peak_text, report.memory))),) if report.memory else ()),
        *(_timing_rows(found) if found is not None else ()),
        ("compiled in", f"{seconds:.1f} s"),
    ]
    yield from columns(rows, indent="  ", numbers=False)
    yield from _host_lines(report)
    yield from _road_lines(report)
    for note in report.notes:
        yield f"note: {note}"


def _apart(report: Report) -> str:
    """That the host works in between."""
    return f", in {report.segments} segments" if report.segments > 1 else ""


def _schedule_rows(report: Report) -> Iterator[tuple[str, str]]:
    """How the graph runs, and what of it goes through DDR between kernels."""
    if report.clusters or report.pieces > 1 or report.search is not None or report.tails:
        clusters = _clusters(report.clusters, report.rows)
        pieces = f"layers run in up to {report.pieces} pieces" if report.pieces > 1 else ""
        yield "schedule", "; ".join(filter(None, (clusters, pieces))) or "layers run as they are"
    for tail in report.tails:
        rest = _clusters(tail.clusters, tail.rows) or "all clusters together run it"
        yield "", f"then a program of its own for the {tail.kernels} kernels behind: {rest}"
    if report.search is not None:
        yield "", report.search.said
    if report.fetched_bytes:
        brought = size_text(report.fetched_bytes)
        yield "ahead", f"{brought} of inputs and weights are brought to LLB while kernels before their readers run"
    if not report.far_results:
        yield "between kernels", "nothing goes through DDR"
        return
    largest = max(report.far_results, key=lambda each: each.bytes)
    total = size_text(sum(each.bytes for each in report.far_results))
    yield "between kernels", f"{len(report.far_results)} results go through DDR, {total} in all"
    yield "", f"the largest, {size_text(largest.bytes)} of {some(largest.nodes)}: {largest.reason}"


def _clusters(clusters: int, rows: bool) -> str:
    part = "some rows of each image" if rows else "a part of the batch"
    return {0: "", 1: "one cluster runs it"}.get(clusters, f"each of {clusters} clusters has {part}")


def _timing_rows(profile: Profile) -> Iterator[tuple[str, str]]:
    found = timing(profile)
    busy = ", ".join(f"{name} {100 * share:.0f} %" for name, share in list(found["busy"].items())[:4])
    speed = f"{found['cycles']:,} cycles = {milliseconds(found['seconds'])} at {profile.chip.clock_mhz:,} MHz"
    yield "time", f"{speed}; busy: {busy}"
    bound = profile.bound
    ratio = f"; {profile.ratio:.2f} times the lower bound of {bound.cycles:,}" if bound and profile.ratio else ""
    yield "bound by", f"{found['bound_by']}{ratio}"
    if profile.host_kernels:
        yield "", "without what runs on the host"
    for one in profile.advice[:1]:
        yield "try", f"{one.title}: {one.text}"


def timing(profile: Profile) -> dict[str, Any]:
    """How long a run takes, what bounds it and what to try, as plain tables."""
    rate = profile.chip.bandwidth.ddr_bytes_per_kilocycle
    total = max(1, sum(run.cycles * run.stream.cores for run in profile.runs))
    shares = {name: cycles / total for name, cycles in profile.busy.items()}
    shares["DDR"] = profile.ddr_bytes * 1000 / max(1, profile.cycles * rate)
    busy = dict(sorted(shares.items(), key=lambda entry: -entry[1]))
    top, share = next(iter(busy.items()))
    is_latency = share < LEAST_BUSY
    return {
        "cycles": profile.cycles,
        "seconds": profile.seconds,
        "bound_cycles": profile.bound.cycles if profile.bound is not None else None,
        "ratio": profile.ratio,
        "busy": busy,
        "bound_by": f"latency: nothing is busy for more than {100 * share:.0f} % of the time"
        if is_latency
        else f"{top}, busy for {100 * share:.0f} % of the time",
        "advice": [{"layers": one.title, "lost_cycles": one.lost_cycles, "text": one.text} for one in profile.advice],
    }


def _peak_text(peak: MemoryPeak) -> str:
    return f"{peak.memory.upper()} {size_text(peak.bytes)} of {size_text(peak.capacity)}"


def kernel_lines(report: Report) -> Iterator[str]:
    """Every use of a kernel; with its cycles once it has run."""
    cycles = {each.kernel: each.cycles for each in report.kernel_cycles}
    rows = [("kernel", "nodes", "instructions", "cores", "tile", *(("cycles",) if cycles else ()))]
    for kernel in report.kernels:
        spent = (f"{cycles.get(kernel.name, 0):,}",) if cycles else ()
        nodes = some(kernel.nodes)
        rows.append((kernel.name, nodes, f"{kernel.instructions:,}", str(kernel.cores), kernel.tile, *spent))
    yield from columns(rows)


def _host_lines(report: Report) -> Iterator[str]:
    for kernel in report.host_kernels[:MAX_ROWS]:
        yield f"on the host: {kernel.operator} ({some(kernel.nodes)}): {kernel.reason}"
    if len(report.host_kernels) > MAX_ROWS:
        yield f"{len(report.host_kernels) - MAX_ROWS} more host kernels are not shown; --json lists all"
    if not report.kernels:
        yield "warning: nothing runs on the chip"


def _road_lines(report: Report) -> Iterator[str]:
    if report.roads:
        yield f"{len(report.roads)} attempts did not fit and others were found:"
        for road in report.roads[:MAX_ROADS]:
            yield f"  {road.what}: {road.why}"
        if len(report.roads) > MAX_ROADS:
            yield f"  {len(report.roads) - MAX_ROADS} more are not shown; --json lists all"
