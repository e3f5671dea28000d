"""What emission raises: a nest that no instruction and no scalar loop can do."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.errors import Problem, UnsupportedError


class NotEmittable(UnsupportedError):
    """No recogniser has a candidate for a store; carries the reason of each. The driver makes a host kernel of it."""

    def __init__(self, problems: Problem | list[Problem], store: str = "", reasons: Iterable[str] = ()) -> None:
        super().__init__(problems)
        self.store = store
        self.reasons = tuple(reasons)

    @classmethod
    def of(cls, store: str, reasons: Iterable[str]) -> NotEmittable:
        listed = list(reasons)
        problem = Problem(
            "TW5601",
            f"no instruction does `{store}`: " + ("; ".join(listed) or "no recogniser knows its form"),
            hint="the operator runs as a host kernel unless host kernels are refused",
        )
        return cls(problem, store, listed)
