"""What runs found, one line each, only ever added to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ci.models.outcome import Outcome, funnel, wrong

ROOT = Path(__file__).parents[2]


def add(path: Path, tier: str, outcomes: Sequence[Outcome]) -> None:
    line = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "tier": tier,
        "funnel": funnel(outcomes),
        "failures": [str(each.case) for each in wrong(outcomes)],
        "cycles": {str(each.case): each.facts["cycles"] for each in outcomes if "cycles" in each.facts},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All runs, oldest first; a line that is none is left out, so that one broken write spoils nothing."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def commit() -> str:
    """Of the checkout, with a mark if files differ from it; empty where this is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
