"""How fast products are done for the bytes they move: every layer a point under the chip's roofs."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10

from compiler.report.layers import Layer
from compiler.report.page.markup import element, label, line, short, svg, text
from compiler.report.profile import Profile

WIDTH, HEIGHT = 1180, 460
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 16, 44


class _Scale:
    """Powers of ten between two ends, on a stretch of the picture."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = floor(log10(low)), max(ceil(log10(high)), floor(log10(low)) + 1)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def powers(self) -> range:
        return range(self.low, self.high + 1)


def intensity(layer: Layer) -> float:
    """Products for every byte of DDR."""
    return sum(layer.macs.values()) / max(1, layer.ddr_bytes)


def speed(layer: Layer) -> float:
    """Products per cycle, of all cores."""
    return sum(layer.macs.values()) / max(1, layer.span)


def picture(profile: Profile) -> str:
    shown = [layer for layer in profile.layers if sum(layer.macs.values())]
    if not shown:
        return element("p", "No layer multiplies matrices, so none is under these roofs.", class_="note")
    chip = profile.chip
    dtypes = sorted({dtype for layer in shown for dtype in layer.macs})
    peaks = {dtype: chip.macs_per_cycle(dtype) * chip.cores for dtype in dtypes}
    slope = chip.bandwidth.ddr_bytes_per_kilocycle / 1000
    highest, ridge = max(peaks.values()), max(peaks.values()) / slope
    xs, ys = [intensity(layer) for layer in shown], [speed(layer) for layer in shown]
    x = _Scale(min(*xs, ridge) / 2, max(*xs, ridge) * 2, LEFT, WIDTH - RIGHT)
    y = _Scale(min(*ys, highest) / 2, highest * 1.5, HEIGHT - BOTTOM, TOP)
    drawn = [*_axes(x, y), *_roofs(x, y, peaks, slope), *_points(profile, shown, x, y)]
    missing = len(profile.layers) - len(shown)
    note = f"Layers without products are not shown: {missing}." if missing else ""
    return svg(WIDTH, HEIGHT, drawn, "roofline", class_="roofline") + element("p", note, class_="note")


def _axes(x: _Scale, y: _Scale) -> Iterator[str]:
    for power in x.powers():
        at = x(10.0**power)
        yield line(at, TOP, at, HEIGHT - BOTTOM, class_="grid")
        yield label(at, HEIGHT - BOTTOM + 16, short(10.0**power), "middle", class_="axis")
    for power in y.powers():
        at = y(10.0**power)
        yield line(LEFT, at, WIDTH - RIGHT, at, class_="grid")
        yield label(LEFT - 8, at + 4, short(10.0**power), "end", class_="axis")
    yield label((LEFT + WIDTH) / 2, HEIGHT - 8, "products for each byte of DDR", "middle", class_="axis")
    yield label(14, TOP + 4, "products per cycle", "end", class_="axis", transform=f"rotate(-90 14 {TOP})")


def _roofs(x: _Scale, y: _Scale, peaks: dict[str, int], slope: float) -> Iterator[str]:
    low, high = 10.0**x.low, 10.0**x.high
    for dtype, peak in peaks.items():
        ridge = min(max(peak / slope, low), high)
        yield line(x(ridge), y(peak), x(high), y(peak), class_="roof")
        yield label(x(high) - 6, y(peak) - 6, f"cube {dtype}: {peak:,} products per cycle", "end", class_="roof-name")
    ridge = max(peaks.values()) / slope
    bottom = max(low, 10.0**y.low / slope)
    yield line(x(bottom), y(bottom * slope), x(ridge), y(ridge * slope), class_="roof")
    yield label(x(ridge) - 10, y(ridge * slope) + 4, f"DDR: {slope:,.1f} bytes per cycle", "end", class_="roof-name")


def _points(profile: Profile, layers: list[Layer], x: _Scale, y: _Scale) -> Iterator[str]:
    """The larger the dot, the more of the time; the large ones below the small ones."""
    numbers = {layer.name: index for index, layer in enumerate(profile.layers)}
    for layer in sorted(layers, key=lambda layer: -layer.share):
        hint = (
            f"{layer.name}: {', '.join(layer.nodes[:4])}\n{layer.cycles:,} cycles, {100 * layer.share:.1f} % of all\n"
            f"{speed(layer):,.0f} products per cycle, {intensity(layer):.2f} for each byte; limit {layer.limit}"
        )
        radius = 3.5 + 40 * min(0.25, layer.share)
        yield element(
            "circle",
            element("title", text(hint)),
            cx=x(intensity(layer)),
            cy=y(max(speed(layer), 10.0**y.low)),
            r=radius,
            class_=f"point limit-{layer.limit}",
            data_layer=numbers[layer.name],
        )
