"""What a pass is: its name, the facts it needs and leaves true, and a function from IR to IR.

Facts are words such as ``"guard-free"``. A pass that needs a fact which no pass before it has established is an
error of the pipeline; a pass that breaks a fact names it in ``breaks``. Options are dataclass fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from compiler.target import Chip


@dataclass(frozen=True)
class Pass(ABC):
    """One rewrite. ``run`` returns its argument itself where it changed nothing."""

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    establishes: ClassVar[frozenset[str]] = frozenset()
    breaks: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def run(self, subject: Any, chip: Chip) -> Any:
        """The rewritten subject: a ``PrimFunc`` in ``passes.tir``, a Relax ``IRModule`` in ``passes.graph``."""
