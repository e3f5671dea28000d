"""DDR traffic as an icicle: all bytes, by layer, by tensor, by queue."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.report.page.markup import element, label, rectangle, svg, tail
from compiler.report.profile import Profile
from compiler.report.tables import size_text
from compiler.report.traffic import Moved

WIDTH, ROW = 1180, 24
_LEAST = 0.4  # of a pixel: what is narrower cannot be seen
_LETTER = 6.2
_COLOURS = 6


def picture(profile: Profile) -> str:
    total = sum(each.bytes for each in profile.traffic)
    if not total:
        return element("p", "Nothing went over DDR.", class_="note")
    return svg(WIDTH, 4 * ROW, _boxes(profile.traffic, total), "DDR traffic", class_="flame")


def _boxes(traffic: tuple[Moved, ...], total: int) -> Iterator[str]:
    yield from _box(0, 0, total, total, f"all: {size_text(total)}", "f-all")
    yield from _level(traffic, total, 0.0, 1)


def _level(traffic: tuple[Moved, ...], total: int, x: float, depth: int) -> Iterator[str]:
    """One row of boxes, each with those below it; in the order in which they came."""
    key = ("layer", "tensor", "queue")[depth - 1]
    groups: dict[str, list[Moved]] = {}
    for each in traffic:
        groups.setdefault(getattr(each, key), []).append(each)
    for number, (name, members) in enumerate(groups.items()):
        size = sum(each.bytes for each in members)
        wide = WIDTH * size / total
        if wide >= _LEAST:
            style = f"q-{name}" if key == "queue" else f"f{depth} c{number % _COLOURS}"
            yield from _box(x, depth, size, total, f"{name}: {size_text(size)}", style)
            if depth < 3:
                yield from _level(tuple(members), total, x, depth + 1)
        x += wide


def _box(x: float, depth: int, size: int, total: int, name: str, style: str) -> Iterator[str]:
    wide = WIDTH * size / total
    yield rectangle(x, depth * ROW, max(0.3, wide - 0.5), ROW - 2, f"{name}, {100 * size / total:.1f} %", class_=style)
    letters = int((wide - 6) / _LETTER)
    if letters >= 4:
        yield label(x + 4, depth * ROW + 15, tail(name, letters), class_="flame-name")
