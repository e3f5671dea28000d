"""The queues of one core over time, with what its layers were and what DDR of the chip did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.isa.dtypes import Queue
from compiler.report.page import series
from compiler.report.page.markup import element, label, line, rectangle, short, svg, tail, ticks
from compiler.report.profile import Profile
from compiler.sim import classes as kinds
from compiler.sim.simulator import Run
from compiler.sim.statistics import summed_by_core
from compiler.sim.trace import flow

LANES = (Queue.MTE2, Queue.MTE1, Queue.M, Queue.FIX, Queue.V, Queue.MTE3, Queue.S)  # in the order in which data goes
KINDS = ("busy", "bandwidth", "flag")
WIDTH, LEFT, RIGHT, TOP = 1180, 64, 10, 34
LANE, GAP = 24, 5
COLUMNS = 1100
_MIN_LABEL = 46


@dataclass(frozen=True)
class Timeline:
    """Shares of stretches of the whole run, of one core; DDR is the chip's."""

    core: int
    cycles: int
    lanes: dict[str, dict[str, np.ndarray]]  # by queue, by kind
    ddr: np.ndarray

    @property
    def height(self) -> int:
        return TOP + (len(LANES) + 1) * (LANE + GAP) + 24


def busiest_core(profile: Profile) -> int:
    """The core that works most, by all that its queues do but dispatching."""
    work = [run.schedule.busy[:, Queue.S + 1 :].sum(axis=1) for run in profile.runs]
    return int(np.argmax(summed_by_core(work))) if work else 0


def timeline(profile: Profile, core: int) -> Timeline:
    borders = series.edges(profile.cycles)
    lanes = {queue.name: {kind: np.zeros(len(borders) - 1) for kind in KINDS} for queue in LANES}
    ddr = np.zeros(len(borders) - 1)
    offset = 0
    for run in profile.runs:
        if core < run.stream.cores:
            for queue in LANES:
                for kind, (start, end) in _intervals(run, core, queue).items():
                    lanes[queue.name][kind] += series.covered(start + offset, end + offset, borders)
        ddr += _ddr(run, offset, borders)
        offset += run.cycles
    rate = profile.chip.bandwidth.ddr_bytes_per_kilocycle / 1000
    return Timeline(core, profile.cycles, lanes, np.minimum(1, ddr / (np.diff(borders) * rate)))


def _intervals(run: Run, core: int, queue: Queue) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """When a queue worked, when it lost time to others at DDR or LLB, and when it waited for a flag."""
    first, last = int(run.stream.core_start[core]), int(run.stream.core_start[core + 1])
    klass = run.stream.klass[first:last]
    mine = np.flatnonzero(run.classes.queue[klass] == queue)
    klass = klass[mine]
    start, end = run.schedule.start[first:last][mine], run.schedule.end[first:last][mine]
    kind, held = run.classes.kind[klass], end - start
    rate = np.maximum(run.classes.rate[klass], 1)
    alone = np.maximum(run.classes.cycles[klass], -(-run.classes.line_bytes[klass] * 1000 // rate))
    share = np.where((kind == kinds.TRANSFER) & (held > 0), np.minimum(1, alone / np.maximum(held, 1)), 1.0)
    before = np.concatenate([[0], end[:-1]]) if len(end) else end
    waits = np.isin(kind, (kinds.WAIT, kinds.CROSS_WAIT))
    works = ~np.isin(kind, (kinds.CORE_BARRIER, kinds.CLUSTER_BARRIER))
    split = (start + held * share).astype(np.int64)
    return {
        "busy": (start[works], split[works]),
        "bandwidth": (split[works], end[works]),
        "flag": (np.minimum(before, start)[waits], start[waits]),
    }


def _ddr(run: Run, offset: int, borders: np.ndarray) -> np.ndarray:
    klass = run.stream.klass
    at = np.flatnonzero(run.classes.takes_ddr(run.stream))
    start, end = run.schedule.start[at] + offset, run.schedule.end[at] + offset
    bytes_ = run.classes.line_bytes[klass[at]]
    return flow(start, end, bytes_ / np.maximum(1, end - start), borders)


# ---- as a picture ---------------------------------------------------------------------------------------------------


def picture(found: Timeline, profile: Profile) -> str:
    """The whole run; the page's script draws parts of it into the same elements."""
    return svg(
        WIDTH,
        found.height,
        _drawn(found, profile),
        f"timeline of core {found.core}",
        id="timeline",
        class_="timeline",
        data_height=found.height,
    )


def alone(found: Timeline, profile: Profile, style: str) -> str:
    """The picture as a file of its own, for pages that only show it."""
    sheet = f'<style>{style} text {{ font-family: system-ui, "Segoe UI", Roboto, sans-serif; }}</style>'
    ground = rectangle(0, 0, WIDTH, found.height, fill="var(--page)")
    title = f"{profile.model.name} on {profile.chip.name}: core {found.core}, {found.cycles:,} cycles"
    return svg(WIDTH, found.height, [sheet, ground, *_drawn(found, profile)], title)


def _drawn(found: Timeline, profile: Profile) -> Iterator[str]:
    width = WIDTH - LEFT - RIGHT
    bottom = found.height - 24
    yield element("g", *_bands(found, profile, width, bottom), id="bands")
    y = TOP
    for name, kinds_ in [*((q.name, found.lanes[q.name]) for q in LANES), ("DDR", {"busy": found.ddr})]:
        yield rectangle(LEFT, y, width, LANE, class_="lane")
        yield label(LEFT - 8, y + LANE * 0.7, name, "end", class_="axis")
        columns = {kind: series.rebinned(values, COLUMNS) for kind, values in kinds_.items()}
        below = np.zeros(len(next(iter(columns.values()))))
        for kind, values in columns.items():
            above = np.minimum(1, below + values)
            path = area(below, above, LEFT, width, y)
            yield element("path", d=path, class_=f"{kind} q-{name}", id=f"lane-{name}-{kind}")
            below = above
        y += LANE + GAP
    marks = []
    for tick in ticks(found.cycles):
        x = LEFT + width * tick / max(1, found.cycles)
        marks += [
            line(x, TOP - 4, x, bottom, class_="grid"),
            label(x, bottom + 16, short(tick), "middle", class_="axis"),
        ]
    yield element("g", *marks, id="ticks")
    yield rectangle(LEFT, 0, width, bottom, id="timeline-area", class_="catch")


def _bands(found: Timeline, profile: Profile, width: int, bottom: int) -> Iterator[str]:
    at = 0
    for index, (layer, cycles) in enumerate(profile.order):
        x, wide = LEFT + width * at / max(1, found.cycles), width * cycles / max(1, found.cycles)
        at += cycles
        if wide < 0.2:
            continue
        if index % 2 == 0:
            yield rectangle(x, 12, wide, bottom - 12, class_="band")
        if wide >= _MIN_LABEL:
            yield label(x + 3, 24, tail(profile.layers[layer].title, int(wide / 6)), class_="band-name")


def area(below: np.ndarray, above: np.ndarray, left: float, width: float, y: float) -> str:
    """Steps between two lines of shares, as a path; runs of nothing are left out."""
    step = width / len(above)
    pieces = []
    changes = np.flatnonzero(np.diff(above, prepend=-1) + 1j * np.diff(below, prepend=-1))
    ends = np.append(changes[1:], len(above))
    for first, end in zip(changes.tolist(), ends.tolist(), strict=True):
        tall = above[first] - below[first]
        if tall > 0.004:
            x, wide = left + first * step, (end - first) * step
            top, high = y + LANE * (1 - above[first]), LANE * tall
            pieces.append(f"M{x:.1f} {top:.1f}h{wide:.1f}v{high:.1f}h{-wide:.1f}z")
    return "".join(pieces)


def script_data(found: Timeline, profile: Profile) -> dict[str, Any]:
    return {
        "cycles": found.cycles,
        "bins": len(found.ddr),
        "left": LEFT,
        "width": WIDTH - LEFT - RIGHT,
        "top": TOP,
        "lane": LANE,
        "gap": GAP,
        "bottom": found.height - 24,
        "kinds": list(KINDS),
        "lanes": [
            {"name": queue.name, "series": [series.packed(found.lanes[queue.name][kind]) for kind in KINDS]}
            for queue in LANES
        ]
        + [{"name": "DDR", "series": [series.packed(found.ddr)]}],
        "layers": [[layer.title, layer.start, layer.end] for layer in profile.layers],
        "order": [list(kernel) for kernel in profile.order],
    }
