"""JSON with exactly one spelling for a value: keys sorted, no spaces, ASCII, integers only.

What is read must be what writing its value would give, so that a document cannot hide anything. Size, depth and the
number of values are limited before the parser sees the text.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import numpy as np

MAX_DEPTH = 12
MAX_VALUES = 4 << 20
# From a quote to the next that is not escaped, or to the end: no quote is looked at twice, so the time is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[0-9]{20}")  # an int64 has at most 19 digits


class NotCanonical(ValueError):
    """The text is not one that :func:`dumps` writes, or exceeds a limit; the message says which."""


def dumps(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def loads(text: bytes) -> Any:
    """The value that ``text`` spells; raises NotCanonical."""
    _check_limits(text)
    try:
        value = json.loads(text.decode("ascii"), parse_float=_refuse, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise NotCanonical(f"byte {error.start} is not ASCII") from error
    except json.JSONDecodeError as error:
        raise NotCanonical(f"not JSON: {error.msg} at byte {error.pos}") from error
    if dumps(value) != text:
        raise NotCanonical("not the canonical spelling: a key is repeated or unsorted, or a space or escape too many")
    return value


def _check_limits(text: bytes) -> None:
    bare = _STRING.sub(b"0", text)
    if _LONG_NUMBER.search(bare):
        raise NotCanonical("a number has 20 digits or more")
    codes = np.frombuffer(bare, np.uint8)
    opening = np.isin(codes, np.frombuffer(b"[{", np.uint8))
    closing = np.isin(codes, np.frombuffer(b"]}", np.uint8))
    values = int(opening.sum()) + int((codes == ord(",")).sum())
    if values > MAX_VALUES:
        raise NotCanonical(f"{values} values; allowed: at most {MAX_VALUES}")
    depth = int(np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int64).max(initial=0))
    if depth > MAX_DEPTH:
        raise NotCanonical(f"nested {depth} deep; allowed: at most {MAX_DEPTH}")


def _refuse(text: str) -> NoReturn:
    raise NotCanonical(f"the number {text[:24]} is not an integer")
