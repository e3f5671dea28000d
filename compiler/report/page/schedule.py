"""The schedule as a picture, a row per layer and a block per kernel, and the stages and round trips as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from compiler.report.page.markup import element, label, line, rectangle, short, svg, tail, text, ticks
from compiler.report.profile import Profile
from compiler.report.stages import Stage, pieces_of
from compiler.report.tables import size_text

WIDTH, LEFT, RIGHT, BOTTOM = 1180, 210, 10, 20
TALLEST, HEIGHT = 16.0, 640.0  # of a row, and of all
LEAST_LABEL, LEAST_HINT = 11.0, 2.0  # of a row that has its name, and of one that can be pointed at
_THINNEST = 0.4


def picture(profile: Profile) -> str:
    rows = len(profile.layers)
    tall = min(TALLEST, HEIGHT / max(1, rows))
    height = round(rows * tall) + BOTTOM
    return svg(WIDTH, height, _drawn(profile, tall), "which layer ran when", class_="schedule")


def _drawn(profile: Profile, tall: float) -> Iterator[str]:
    width, bottom = WIDTH - LEFT - RIGHT, len(profile.layers) * tall
    for number, stage in enumerate(profile.stages):
        y, high = stage.first * tall, (stage.last + 1 - stage.first) * tall
        yield rectangle(LEFT, y, width, high, class_="lane" if number % 2 else "band")
    for tick in ticks(profile.cycles):
        x = LEFT + width * tick / max(1, profile.cycles)
        yield line(x, 0, x, bottom, class_="grid")
        yield label(x, bottom + 15, short(tick), "middle", class_="axis")
    blocks = _blocks(profile, width, tall)
    if tall < LEAST_HINT:
        for limit in dict.fromkeys(layer.limit for layer in profile.layers):
            mine = (blocks[number] for number, layer in enumerate(profile.layers) if layer.limit == limit)
            yield element("path", d="".join(chain.from_iterable(mine)), class_=f"limit-{limit}")
        return
    pieces = pieces_of(profile.layers, profile.order)
    for number, layer in enumerate(profile.layers):
        hint = f"{layer.title}: {_count(pieces[number])}, {layer.cycles:,} cycles, limit {layer.limit}"
        yield element("path", element("title", text(hint)), d="".join(blocks[number]), class_=f"limit-{layer.limit}")
        if tall >= LEAST_LABEL:
            yield label(LEFT - 8, (number + 0.75) * tall, tail(layer.title, 32), "end", class_="axis")


def _blocks(profile: Profile, width: int, tall: float) -> dict[int, list[str]]:
    """By layer; what follows itself without anything between is one block."""
    found: dict[int, list[str]] = defaultdict(list)
    at, gap = 0, min(1.0, tall / 8)
    for layer, cycles in profile.order:
        x, wide = LEFT + width * at / max(1, profile.cycles), width * cycles / max(1, profile.cycles)
        at += cycles
        wide, high = max(_THINNEST, wide), tall - 2 * gap
        found[layer].append(f"M{x:.1f} {layer * tall + gap:.1f}h{wide:.1f}v{high:.1f}h{-wide:.1f}z")
    return found


def _count(pieces: int) -> str:
    return "in one piece" if pieces == 1 else f"in {pieces} pieces"


# ---- tables -----------------------------------------------------------------------------------------------------

_HEADS = ("layers", "pieces", "cycles", "%", "cube", "vector", "loads", "stores", "DDR", "LLB")


def stages(profile: Profile) -> str:
    return _table(_HEADS, (_stage(profile, stage) for stage in profile.stages))


def _stage(profile: Profile, stage: Stage) -> tuple[str, ...]:
    busy = {name: f"{min(1.0, share):.0%}" for name, share in stage.busy.items()}
    return (
        stage.title(profile.layers), str(stage.pieces), f"{stage.cycles:,}", f"{100 * stage.share:.1f}", busy["M"],
        busy["V"], busy["MTE2"], busy["MTE3"], size_text(stage.ddr_bytes), size_text(stage.llb_bytes),
    )  # fmt: skip


def round_trips(profile: Profile) -> str:
    """What lies in DDR between kernels."""
    if not profile.round_trips:
        return element("p", "Nothing goes through DDR between kernels.", class_="note")
    titles = {layer.name: layer.title for layer in profile.layers}
    rows = (
        (titles[each.layer], size_text(each.written), size_text(each.read), each.reason or "-")
        for each in profile.round_trips
    )
    return _table(("result of", "written", "read", "why not on the chip"), rows, numbers=(1, 2))


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]], numbers: tuple[int, ...] | None = None) -> str:
    right = range(1, len(heads)) if numbers is None else numbers
    body = [
        element("tr", *(element("td", text(cell), class_="n" if at in right else None) for at, cell in enumerate(row)))
        for row in rows
    ]
    head = [element("th", text(name), class_="n" if at in right else None) for at, name in enumerate(heads)]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="plain")
    return element("div", table, class_="scroll")
