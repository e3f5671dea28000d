"""The outcomes for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ci.models.outcome import STAGES, Outcome, funnel, wrong

SCHEMA_VERSION = 1
ERROR_LINES = 6  # of a failed case's messages
HEAD = f"{'case':36} {'passed':8} {'compile':>9} {'run':>9} {'cycles':>12}  outputs"


def row(each: Outcome) -> str:
    times = (each.seconds(stage) for stage in ("compile", "run"))
    shown = " ".join(f"{'-' if seconds is None else f'{seconds:.2f} s':>9}" for seconds in times)
    reached = each.passed[-1].stage if each.passed else "-"
    matched = next((passed.found for passed in each.passed if passed.stage == "match"), {})
    outputs = ", ".join(f"{name}: {value}" for name, value in matched.items())
    cycles = each.found.get("cycles")
    taken = f"{cycles:,}" if isinstance(cycles, int) else "-"
    verdict = (
        "" if not each.error else f"  EXPECTED: {each.expected}" if each.expected else f"  FAILED at {each.failed}"
    )
    return f"{each.case!s:36} {reached:8} {shown} {taken:>12}  {outputs}{verdict}"


def conclusion(outcomes: Sequence[Outcome], seconds: float) -> Iterator[str]:
    """The failures with what is known of them, then the funnel."""
    failures = wrong(outcomes)
    for each in failures:
        lines = "\n".join(f"    {line}" for line in each.error.splitlines()[-ERROR_LINES:])
        yield f"FAILED: {each.case} at {each.failed or 'the end'}\n{lines}"
        if each.culprit:
            yield f"    what it changed: python -m ci.models.difference {each.case}"
    yield funnel_line(outcomes)
    known = sum(bool(each.expected) for each in outcomes)
    yield f"failures: {len(failures)}, expected ones: {known}, {seconds:.0f} s"


def funnel_line(outcomes: Sequence[Outcome]) -> str:
    """How many passed each stage, and which share of those that came to it."""
    parts, before = [], len(outcomes)
    for stage, count in funnel(outcomes).items():
        parts.append(f"{stage} {count} ({100 * count / (before or 1):.1f} %)")
        before = count
    return f"{len(outcomes)} cases: {', '.join(parts)}"


def as_json(outcomes: Sequence[Outcome]) -> str:
    entries = [
        {
            "case": str(each.case),
            "failed": each.failed,
            "error": each.error,
            "expected": each.expected,
            "culprit": each.culprit,
            "worker": each.worker,
            "seconds": {passed.stage: round(passed.seconds, 3) for passed in each.passed},
            **each.facts,
            "outputs": next((passed.found for passed in each.passed if passed.stage == "match"), {}),
        }
        for each in outcomes
    ]
    held = {"schema_version": SCHEMA_VERSION, "stages": STAGES, "funnel": funnel(outcomes), "cases": entries}
    return json.dumps(held, indent=1) + "\n"
