"""How many processors this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """Those that it is bound to (`taskset`, the cpuset of a container), where the system tells; else all there are."""
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1
