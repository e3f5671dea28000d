"""What is asked of a compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.schedule.files import load_schedule
from compiler.schedule.manual import Manual


@dataclass(frozen=True)
class Options:
    """What is asked of a compilation."""

    precision: str | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    host_kernels: bool = True
    cache: bool = True  # these two change nothing but the time it takes
    jobs: int | None = None
    ops: Sequence[str | os.PathLike[str]] = ()  # files of operators: Python, and run
    schedule: str | os.PathLike[str] | Manual | None = None  # how the graph runs, where somebody says that
    values: Mapping[str, Any] = field(default_factory=dict)  # of inputs that are known now, and compiled in
    tune: int | None = None  # tiles that are tried for each kernel beside the first, where somebody says how many

    @property
    def manual(self) -> Manual | None:
        """The schedule that somebody gave."""
        given = self.schedule
        return given if given is None or isinstance(given, Manual) else load_schedule(Path(given))
