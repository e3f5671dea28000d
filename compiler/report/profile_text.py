"""A profile as text: a summary, a table of layers, and what to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compiler.isa.dtypes import Queue
from compiler.report.layers import Layer
from compiler.report.profile import Profile
from compiler.report.tables import columns, milliseconds, size_text, some
from compiler.sim.pipeline import REASONS

_NAME_CHARS = 40


def _ratio(layer: Layer) -> float:
    return layer.ratio or 0.0


_ORDERS: dict[str, Callable[[Layer], Any]] = {
    "cycles": lambda layer: -layer.cycles,
    "ratio": lambda layer: -_ratio(layer),
    "lost": lambda layer: -layer.lost_cycles,
    "order": lambda layer: 0,
    "ddr": lambda layer: -layer.ddr_bytes,
    "conflicts": lambda layer: -layer.conflict_cycles,
    "name": lambda layer: layer.name,
}
SORTS = tuple(_ORDERS)


def sorted_layers(layers: Sequence[Layer], by: str) -> list[Layer]:
    return sorted(layers, key=_ORDERS[by])


def lines(profile: Profile, top: int, sort: str, details: bool = False) -> Iterator[str]:
    """``top`` layers, of which 0 are all, in the order ``sort``; with ``details`` each by itself, too."""
    yield from _summary(profile)
    yield ""
    yield from _queues(profile)
    yield ""
    if len(profile.stages) > 1 or profile.round_trips:
        yield from _schedule_lines(profile)
        yield ""
    yield from _layer_lines(profile, top, sort)
    if details:
        for layer in sorted_layers(profile.layers, sort)[: top or None]:
            yield ""
            yield from _details(layer)
    yield from _advice(profile)


def _summary(profile: Profile) -> Iterator[str]:
    precision = profile.model.options.get("precision") or "as the model says"
    yield f"{profile.model.name} on {profile.chip.name}, precision {precision}"
    rows = [("cycles", f"{profile.cycles:,} = {milliseconds(profile.seconds)} at {profile.chip.clock_mhz:,} MHz")]
    if profile.bound is not None and profile.ratio is not None:
        bound = profile.bound
        rows.append(("lower bound", f"{bound.cycles:,} by {bound.by}; it takes {profile.ratio:.2f} times as long"))
        of_rates = f"cube {bound.cube_cycles:,}, vector {bound.vector_cycles:,}, ddr {bound.ddr_cycles:,}"
        rows.append(("", f"{of_rates}, latency {bound.latency_cycles:,} cycles"))
    ddr = f"{size_text(profile.ddr_bytes)} moved"
    if profile.work is not None:
        ddr += f", {size_text(profile.work.ddr_bytes)} must be"
    rows.append(("DDR", ddr))
    rows.append(("layers", f"{len(profile.layers)}, of {len(profile.order)} kernels, on {profile.cores} cores"))
    yield from columns(rows, indent="  ", numbers=False)
    for segment in profile.host_kernels[:5]:
        yield f"  on the host, and in no figure here: {segment.operator or segment.name}: {segment.reason}"


def _queues(profile: Profile) -> Iterator[str]:
    """Where the cycles of every queue went, in percent of all cycles of all cores."""
    total = max(1, profile.core_cycles)
    reasons = list(next(iter(profile.stalled.values())))
    rows = [("queue", "busy %", *(f"{reason.replace('_', ' ')} %" for reason in reasons))]
    for queue in Queue:
        stalled = profile.stalled[queue.name]
        cells = [profile.busy[queue.name], *(stalled[reason] for reason in reasons)]
        rows.append((queue.name, *(f"{100 * cell / total:.1f}" for cell in cells)))
    yield from _aligned(rows)


def _schedule_lines(profile: Profile) -> Iterator[str]:
    """Layers that run in as many pieces, and what goes through DDR between kernels."""
    rows = [("stage", "pieces", "cycles", "%", "cube %", "vector %", "DDR")]
    for stage in profile.stages:
        rows.append((
            _cut(stage.title(profile.layers)), str(stage.pieces), f"{stage.cycles:,}", f"{100 * stage.share:.1f}",
            f"{100 * stage.busy['M']:.1f}", f"{100 * stage.busy['V']:.1f}", size_text(stage.ddr_bytes),
        ))  # fmt: skip
    if len(profile.stages) > 1:
        yield from _aligned(rows)
    if profile.round_trips:
        written = sum(each.written for each in profile.round_trips)
        made = f"from {len(profile.round_trips)} of {len(profile.layers)} layers"
        yield f"through DDR between kernels: {size_text(written)}, {made}"


def _layer_lines(profile: Profile, top: int, sort: str) -> Iterator[str]:
    chosen = sorted_layers(profile.layers, sort)
    shown = chosen[:top] if top else chosen
    rows = [("layer", "cycles", "%", "bound", "ratio", "limit", "conflicts", "DDR", "cores")]
    for layer in shown:
        bound = f"{layer.bound.cycles:,} {layer.bound.by}" if layer.bound is not None else "-"
        rows.append((
            _cut(layer.title), f"{layer.cycles:,}", f"{100 * layer.share:.1f}", bound,
            f"{layer.ratio:.2f}" if layer.ratio is not None else "-",
            f"{layer.limit} {100 * layer.limit_share:.0f}%", f"{layer.conflict_cycles:,}", size_text(layer.ddr_bytes),
            str(layer.cores),
        ))  # fmt: skip
    yield from _aligned(rows, left=(0, 5))
    if len(chosen) > len(shown):
        rest = chosen[len(shown) :]
        share = 100 * sum(layer.share for layer in rest)
        yield f"{len(rest)} more layers, {share:.1f} % of the cycles, are not shown: --top 0 shows all"


def _details(layer: Layer) -> Iterator[str]:
    """Where a layer's queues spent its span on the cores in use, what it moved, and what it is."""
    yield layer.title
    rows = [
        ("nodes", some(layer.nodes, 8)),
        ("kernels", some(layer.kernels, 8)),
        ("tile", layer.tile or "-"),
        ("span", f"{layer.span:,} cycles, from {layer.start:,} to {layer.end:,}, on {layer.cores} cores"),
        ("DDR", _moved(layer)),
    ]
    rows += [(name, f"{path.moved_bytes:,} bytes in {path.copies:,} copies") for name, path in layer.paths.items()]
    yield from columns(rows, indent="  ", numbers=False)
    heads = (
        "queue",
        "instructions",
        "busy %",
        "of cycles %",
        *(f"{reason.replace('_', ' ')} %" for reason in REASONS),
    )
    table = [heads]
    for queue in Queue:
        if layer.instructions[queue.name] or layer.busy[queue.name]:
            shares = [layer.busy_share(queue.name), layer.use[queue.name]]
            shares += [layer.stalled_share(queue.name, reason) for reason in REASONS]
            count = f"{layer.instructions[queue.name]:,}"
            table.append((queue.name, count, *(f"{100 * share:.1f}" for share in shares)))
    for row in _aligned(table):
        yield f"  {row}"


def _moved(layer: Layer) -> str:
    text = f"{layer.ddr_bytes:,} bytes in lines"
    return text if layer.work is None else f"{text}; {layer.work.ddr_bytes:,} must be"


def _advice(profile: Profile) -> Iterator[str]:
    if not profile.advice:
        return
    yield ""
    yield "what to try, where most cycles are lost:"
    for one in profile.advice:
        yield f"  {one.title}: {one.lost_cycles:,} cycles above the bound"
        yield f"    {one.text}"


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS // 2]}...{name[-_NAME_CHARS // 3 :]}"


def _aligned(rows: Sequence[tuple[str, ...]], left: Sequence[int] = (0,)) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [f"{c:<{w}}" if i in left else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
