"""Where the cycles of every queue went, as stacked bars."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.report.layers import Layer
from compiler.report.page.markup import element, label, rectangle, svg, text
from compiler.report.page.timeline import LANES
from compiler.report.profile import Profile

WIDTH, LEFT, ROW, BAR = 1180, 64, 30, 20
REASONS = ("bandwidth", "flag", "barrier", "queue_full", "empty", "done")


def picture(profile: Profile) -> str:
    drawn: list[str] = []
    total = max(1, profile.core_cycles)
    for row, queue in enumerate(LANES):
        stalled = profile.stalled[queue.name]
        parts = [("busy", profile.busy[queue.name]), *((reason, stalled.get(reason, 0)) for reason in REASONS)]
        drawn += _row(queue.name, parts, total, row * ROW)
    return svg(WIDTH, len(LANES) * ROW, drawn, "busy and waiting, by queue", class_="bars") + legend()


def _row(name: str, parts: list[tuple[str, int]], total: int, y: int) -> Iterator[str]:
    yield label(LEFT - 8, y + BAR * 0.75, name, "end", class_="axis")
    x = float(LEFT)
    for reason, cycles in parts:
        wide = (WIDTH - LEFT) * cycles / total
        if wide >= 0.05:
            hint = f"{name}: {reason.replace('_', ' ')}, {100 * cycles / total:.1f} %"
            yield rectangle(x, y, wide, BAR, hint, class_=f"r-{reason}")
        if wide >= 44:
            yield label(x + wide / 2, y + BAR * 0.72, f"{100 * cycles / total:.0f} %", "middle", class_=f"in-{reason}")
        x += wide


def layer_shares(layer: Layer) -> str:
    """For the page's script: of every queue, and for every key of the legend but the last, whole percents."""
    queues = []
    for queue in LANES:
        shares = [layer.busy_share(queue.name), *(layer.stalled_share(queue.name, reason) for reason in REASONS[:-1])]
        queues.append(",".join(str(round(100 * share)) for share in shares))
    return ";".join(queues)


def legend() -> str:
    words = ("busy", *REASONS)
    keys = [element("span", element("i", class_=f"key r-{w}"), text(w.replace("_", " "))) for w in words]
    return element("p", *keys, class_="legend")
