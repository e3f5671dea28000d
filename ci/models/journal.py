"""Outcomes of a run as they come, so that one that was interrupted goes on where it was.

A line holds what the outcome depends on: outcomes of other sources, or of another question, are not taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ci.models.cases import Case
from ci.models.observe import Options
from ci.models.outcome import Outcome

ROOT = Path(__file__).parents[2]
DEFAULT = Path("build/models/journal.jsonl")


def read(path: Path, options: Options, chosen: Iterable[Case]) -> dict[Case, Outcome]:
    """What is known of the chosen cases; a failure is tried again, and half a line was an interrupted run's last."""
    wanted, found = set(chosen), dict[Case, Outcome]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            held = json.loads(line)
        except ValueError:
            continue
        if held.get("of") == _key(options):
            outcome = Outcome.from_dict(held["outcome"])
            if outcome.case in wanted and outcome.right:
                found[outcome.case] = outcome
    return found


def add(path: Path, options: Options, outcome: Outcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"of": _key(options), "outcome": outcome.to_dict()}) + "\n")


def _key(options: Options) -> str:
    return hashlib.sha256(f"{sources()} {options}".encode()).hexdigest()[:16]


@cache
def sources() -> str:
    """The compiler, the zoo, and this job."""
    from compiler.kernel_cache import compiler_digest

    digest = hashlib.sha256(compiler_digest().encode())
    for folder in ("models", "ci/models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
