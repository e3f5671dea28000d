"""The collector of garbage, and when it had better rest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """For work that makes much, keeps it, and leaves no cycles of references behind: the collector would walk all that
    the process holds again and again, for a quarter of the time and more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
