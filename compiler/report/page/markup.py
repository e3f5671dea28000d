"""HTML and SVG from plain values: everything that comes from a model is escaped here."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from compiler.report.tables import printable


def text(value: object) -> str:
    """What a file holds may neither be markup nor steer a terminal."""
    return escape(printable(str(value)), quote=True)


def attributes(**given: object) -> str:
    """``class_`` is class, ``stroke_width`` is stroke-width; None leaves an attribute out."""
    parts = []
    for name, value in given.items():
        if value is not None:
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{text(number(value))}"')
    return "".join(parts)


def element(name: str, *children: str, **given: object) -> str:
    return f"<{name}{attributes(**given)}>{''.join(children)}</{name}>"


def number(value: object) -> object:
    """Coordinates with as many digits as can be seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def svg(width: int, height: int, children: Iterable[str], title: str, **given: object) -> str:
    label = element("title", text(title))
    return element(
        "svg",
        label,
        *children,
        viewBox=f"0 0 {width} {height}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
        **given,
    )


def label(x: float, y: float, value: object, anchor: str = "start", **given: object) -> str:
    return element("text", text(value), x=x, y=y, text_anchor=anchor, **given)


def rectangle(x: float, y: float, width: float, height: float, title: str = "", **given: object) -> str:
    hint = (element("title", text(title)),) if title else ()
    return element("rect", *hint, x=x, y=y, width=width, height=height, **given)


def line(x1: float, y1: float, x2: float, y2: float, **given: object) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **given)


def ticks(end: float, count: int = 8) -> list[float]:
    """Round numbers from zero to ``end``."""
    if end <= 0:
        return [0.0]
    rough = end / count
    power: float = 10.0 ** (len(str(int(rough))) - 1) if rough >= 1 else 1.0
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * i for i in range(int(end / step) + 1)]


def tail(value: str, letters: int) -> str:
    """The end of a name that is too long: paths begin alike."""
    return value if len(value) <= letters else f"\u2026{value[-max(1, letters - 1) :]}"


def short(value: float) -> str:
    """1,234 as 1.2k."""
    for unit, one in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= one:
            return f"{value / one:.3g}{unit}"
    return f"{value:.3g}"
