"""What lay where in the memories of a core, over time: addresses upwards, time to the right, a colour per layer."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator

import numpy as np

from compiler.report.page.markup import element, label, line, rectangle, short, svg, text, ticks
from compiler.report.profile import Profile
from compiler.report.tables import size_text
from compiler.sim.occupancy import Lives, lives

WIDTH, LEFT, RIGHT = 1180, 64, 10
HEIGHT, BOTTOM = 96, 20
COLUMNS, ROWS = 1106, 64
SHOWN = ("l1", "l0a", "l0b", "l0c", "ub", "llb")
_COLOURS = ((57, 106, 177), (218, 124, 48), (62, 150, 81), (107, 76, 154), (204, 82, 115), (23, 150, 160))


def pictures(profile: Profile, core: int) -> Iterator[str]:
    for name in SHOWN:
        found = _lives(profile, name, core)
        if found is not None:
            yield _picture(profile, name, core, *found)


def _lives(profile: Profile, name: str, core: int) -> tuple[Lives, np.ndarray] | None:
    """All that lived in a memory of this core, or of its cluster, and the end of the layer it was written in."""
    parts, offset = [], 0
    for run in profile.runs:
        if core < run.stream.cores:
            owner = run.chip.cluster_of(core) if name == "llb" else core
            found = lives(run, name, owner)
            if len(found.low):
                parts.append(found.moved(offset))
        offset += run.cycles
    if not parts:
        return None
    every = Lives(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("low", "high", "born", "died")))
    layers, cycles = (np.array(column) for column in zip(*profile.order, strict=True))
    at = np.searchsorted(np.cumsum(cycles), every.born, side="right")
    return every, layers[np.minimum(at, len(layers) - 1)]


def _picture(profile: Profile, name: str, core: int, found: Lives, layer: np.ndarray) -> str:
    capacity = profile.chip.memory_bytes(name)
    grid = raster(found, layer, profile.cycles, capacity)
    width = WIDTH - LEFT - RIGHT
    image = element(
        "image", x=LEFT, y=0, width=width, height=HEIGHT, preserveAspectRatio="none", class_="raster",
        href=f"data:image/png;base64,{b64encode(png(grid)).decode()}",
    )  # fmt: skip
    peak = _peak(found)
    marks = []
    for tick in ticks(profile.cycles):
        x = LEFT + width * tick / max(1, profile.cycles)
        marks += [line(x, 0, x, HEIGHT, class_="grid"), label(x, HEIGHT + 15, short(tick), "middle", class_="axis")]
    drawn = [
        rectangle(LEFT, 0, width, HEIGHT, class_="lane"),
        image,
        *marks,
        label(LEFT - 8, 10, size_text(capacity), "end", class_="axis"),
        label(LEFT - 8, HEIGHT, "0", "end", class_="axis"),
    ]
    owner = f"cluster {profile.chip.cluster_of(core)}" if name == "llb" else f"core {core}"
    title = f"{name.upper()} of {owner}: at most {size_text(peak)} of {size_text(capacity)} live"
    head = element("h3", text(title), element("small", f" {100 * peak / capacity:.0f} %"))
    return head + svg(WIDTH, HEIGHT + BOTTOM, drawn, title, class_="memory")


def _peak(found: Lives) -> int:
    """The most bytes that were live at once."""
    times = np.concatenate([found.born, found.died])
    change = np.concatenate([found.high - found.low, found.low - found.high])
    order = np.lexsort((change, times))
    return int(np.cumsum(change[order]).max(initial=0))


def raster(found: Lives, layer: np.ndarray, cycles: int, capacity: int) -> np.ndarray:
    """For every stretch of time and addresses 1 + the colour of what lived there last, or 0: [rows, columns]."""
    grid = np.zeros((ROWS, COLUMNS), np.uint8)
    left = np.clip(found.born * COLUMNS // max(1, cycles), 0, COLUMNS - 1)
    right = np.clip(-(-found.died * COLUMNS // max(1, cycles)), left + 1, COLUMNS)
    low = np.clip(found.low * ROWS // capacity, 0, ROWS - 1)
    high = np.clip(-(-found.high * ROWS // capacity), low + 1, ROWS)
    boxes = np.stack([left, right, low, high, layer % len(_COLOURS) + 1], axis=1)
    for x0, x1, y0, y1, colour in np.unique(boxes, axis=0).tolist():
        grid[y0:y1, x0:x1] = colour
    return grid[::-1]


def png(grid: np.ndarray) -> bytes:
    """An image of a few colours, of which the first is nothing."""
    rows, columns = grid.shape
    raw = b"".join(b"\0" + row.tobytes() for row in grid)
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    palette = bytes(3) + bytes(value for colour in _COLOURS for value in colour)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"tRNS", b"\0"), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body
