"""What is known of a case once it was observed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ci.models.cases import Case, parsed
from models import zoo

STAGES = ("import", "compile", "run", "match", "perf")


@dataclass(frozen=True)
class Passed:
    """A stage that was passed, how long it took, and what was found."""

    stage: str
    seconds: float
    found: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How far a case came; ``error`` is empty if through all stages.

    ``facts`` are what the record holds, as far as the case came; ``culprit`` names the pass that made another program
    first, where the program is another one than recorded. ``expected`` is why a failure is one that is known.
    """

    case: Case
    passed: tuple[Passed, ...]
    error: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    culprit: str = ""
    expected: str = ""
    worker: str = ""  # which process observed it

    @property
    def failed(self) -> str:
        """The stage that failed, if one did."""
        return STAGES[len(self.passed)] if len(self.passed) < len(STAGES) else ""

    @property
    def right(self) -> bool:
        """Is it as it is expected to be?"""
        return not self.error or bool(self.expected)

    @property
    def found(self) -> dict[str, Any]:
        return {name: value for passed in self.passed for name, value in passed.found.items()}

    def seconds(self, stage: str) -> float | None:
        return next((passed.seconds for passed in self.passed if passed.stage == stage), None)

    @property
    def total_seconds(self) -> float:
        return sum(passed.seconds for passed in self.passed)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "case": str(self.case), "passed": [asdict(passed) for passed in self.passed]}

    @staticmethod
    def from_dict(held: Mapping[str, Any]) -> Outcome:
        passed = tuple(Passed(**each) for each in held["passed"])
        return Outcome(**{**held, "case": parsed(held["case"]), "passed": passed})


def judged(outcome: Outcome) -> Outcome:
    """With what the manifest expects to fail: a failure that is known is right, one that does not come is an error."""
    for known in zoo.manifest(outcome.case.model).expected_failures:
        if not known.covers(outcome.case.chip, outcome.case.precision):
            continue
        if outcome.failed == known.stage and known.message in outcome.error:
            return replace(outcome, expected=known.reason)
        if not outcome.error or outcome.failed == "perf":
            text = f"it passes {known.stage}, where it is expected to fail ({known.reason}): take that out of the zoo"
            return replace(outcome, error=text)
    return outcome


def funnel(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many cases passed each stage."""
    return {stage: sum(each.seconds(stage) is not None for each in outcomes) for stage in STAGES}


def wrong(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if not each.right]
