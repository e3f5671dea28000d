"""Rows of text in columns, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def columns(rows: Sequence[tuple[str, ...]], indent: str = "", numbers: bool = True) -> Iterator[str]:
    """Cells that hold numbers stand to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = [numbers and all(_is_number(row[i]) for row in rows[1:]) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if number else f"{cell:<{width}}"
            for cell, width, number in zip(row, widths, right, strict=True)
        ]
        yield (indent + "  ".join(cells)).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()


def printable(line: str) -> str:
    """What a file holds may not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def size_text(count: int) -> str:
    for unit, one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= one:
            return f"{count / one:.1f} {unit}"
    return f"{count} B"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:,.2f} us"


def some(names: Sequence[str], limit: int = 3) -> str:
    """The first of many names, and how many there are more."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def described(outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays by what tells them apart."""
    return {
        name: {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "sha256": sha256(array.tobytes()).hexdigest(),
        }
        for name, array in outputs.items()
    }
