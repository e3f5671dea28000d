"""`docs/performance.md`: parts between markers, each written by the command that measures it."""

from __future__ import annotations

import re
from pathlib import Path

PATH = Path(__file__).parents[2] / "docs" / "performance.md"


def with_part(text: str, part: str, content: str) -> str:
    """The document with one part written anew; a part has to be in it."""
    found = re.compile(rf"(<!-- {re.escape(part)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not found.search(text):
        raise ValueError(f"{PATH.name} has no part {part}")
    return found.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text, count=1)


def write(part: str, content: str) -> None:
    PATH.write_text(with_part(PATH.read_text(), part, content))
