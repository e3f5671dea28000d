"""A report as the text that a person reads after a compilation."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.report.compilation import Report
from compiler.report.tables import columns, size_text, some

MAX_ROWS = 20
MAX_ROADS = 6


def summary(report: Report, seconds: float) -> Iterator[str]:
    """All that was decided and what it costs; ``seconds`` is how long all of it took."""
    npu, host = len(report.npu_nodes), len(report.host_nodes)
    share = 100 * report.offload_share
    ddr, kernels = report.ddr, len(report.kernels)
    yield f"{report.model} for {report.chip}, precision {report.precision}"
    rows = [
        ("nodes on the chip", f"{npu} of {npu + host} ({share:.1f} %)"),
        ("nodes on the host", f"{host}" if host else "none"),
        (
            "kernels",
            f"{kernels}, {report.distinct_kernels} of them distinct, in {report.segments} segments",
        ),
        ("program", f"{report.instructions:,} instructions, {size_text(report.program_bytes)}"),
        ("constants", size_text(report.constant_bytes)),
        (
            "DDR",
            f"{size_text(ddr.total)} of {size_text(ddr.capacity)}: inputs {size_text(ddr.inputs)}, outputs "
            f"{size_text(ddr.outputs)}, constants {size_text(ddr.constants)}, rest {size_text(ddr.intermediates)}",
        ),
        ("compiled in", f"{seconds:.1f} s"),
    ]
    yield from columns(rows, indent="  ", numbers=False)
    yield from _host_lines(report)
    yield from _road_lines(report)
    for note in report.notes:
        yield f"note: {note}"


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
