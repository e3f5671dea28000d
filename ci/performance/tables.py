"""Tables as text for a terminal and as Markdown for the document, and the mean of ratios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log


def geometric_mean(ratios: Iterable[float]) -> float:
    logs = [log(ratio) for ratio in ratios]
    return exp(sum(logs) / len(logs)) if logs else float("nan")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def aligned(cells: Sequence[str]) -> str:
    """A line for a terminal, where rows come one by one."""
    return f"{cells[0]:24} {cells[1]:5} " + " ".join(f"{cell:>14}" for cell in cells[2:])
