"""The layers as a table that can be sorted, with what each queue was busy as small bars."""

from __future__ import annotations

from compiler.report.layers import Layer
from compiler.report.page.markup import element, text
from compiler.report.page.timeline import LANES
from compiler.report.profile import Profile
from compiler.report.tables import size_text, some

SHOWN_ROWS = 50  # before somebody asks for all
_WIDE = 24  # letters of a column
_HEADS = (
    ("#", "n"), ("layer", "t"), ("nodes", "t"), ("cycles", "n"), ("%", "n"), ("bound", "n"), ("by", "t"),
    ("ratio", "n"), ("limit", "t"), ("queues", ""), ("conflicts", "n"), ("DDR", "n"), ("LLB", "n"), ("cores", "n"),
    ("tile", "t"),
)  # fmt: skip


def table(profile: Profile) -> str:
    heads = [element("th", text(name), data_kind=kind or None, tabindex="0" if kind else None) for name, kind in _HEADS]
    rows = [_row(number, layer) for number, layer in enumerate(profile.layers)]
    more = ""
    if len(rows) > SHOWN_ROWS:
        more = element("button", f"show all {len(rows)}", id="more", type="button")
    return (
        element(
            "p", '<input id="filter" type="search" placeholder="filter by name, node or limit">', more, class_="tools"
        )
        + '<div class="scroll"><table id="layers" data-shown="'
        + f'{SHOWN_ROWS}">'
        + element("thead", element("tr", *heads))
        + element("tbody", *rows)
        + "</table></div>"
    )


def _row(number: int, layer: Layer) -> str:
    bound, ratio = layer.bound, layer.ratio
    cells = [
        _number(number, str(number)),
        _cut(layer.name, "\n".join(layer.kernels)),
        _cut(some(layer.nodes, 2), "\n".join(layer.nodes)),
        _number(layer.cycles, f"{layer.cycles:,}"),
        _share(layer),
        _number(bound.cycles, f"{bound.cycles:,}") if bound is not None else _number(-1, "-"),
        element("td", text(bound.by if bound is not None else "-")),
        _number(ratio, f"{ratio:.2f}") if ratio is not None else _number(-1, "-"),
        element("td", text(f"{layer.limit} {100 * layer.limit_share:.0f}%"), class_=f"limit limit-{layer.limit}"),
        _queues(layer),
        _number(layer.conflict_cycles, f"{layer.conflict_cycles:,}"),
        _number(layer.ddr_bytes, size_text(layer.ddr_bytes)),
        _number(layer.llb_bytes, size_text(layer.llb_bytes)),
        _number(layer.cores, str(layer.cores)),
        _cut(layer.tile, layer.tile),
    ]
    return element("tr", *cells, data_layer=number)


def _number(value: float, shown: str) -> str:
    return element("td", text(shown), data_v=value, class_="n")


def _cut(shown: str, whole: str) -> str:
    """What may be too long for its column shows all of it to who points at it."""
    return element("td", text(shown), class_="long", title=whole if whole != shown or len(whole) > _WIDE else None)


def _share(layer: Layer) -> str:
    part = 100 * layer.share
    return element("td", f"{part:.1f}", data_v=layer.cycles, class_="n bar", style=f"--part:{part:.1f}%")


def _shares(layer: Layer) -> dict[str, float]:
    """For what share of the cycles each queue of the busiest core was busy; then DDR."""
    return {name: min(1.0, layer.use.get(name, 0.0)) for name in [*(queue.name for queue in LANES), "DDR"]}


def _queues(layer: Layer) -> str:
    """A bar for each, as tall as its share; their colours go by their order."""
    shares = _shares(layer)
    drawn = [element("i", style=f"height:{round(18 * share)}px") for share in shares.values()]
    hint = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
    return element("td", *drawn, class_="queues", title=hint)
