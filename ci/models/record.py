"""What every case took when it was recorded: `models/expected/<model>.json`, a few lines a case.

Cycles, bytes and numbers of instructions are exact on every machine. The trail is a hash of what every step of the
compiler made (`ci.models.trail`); seconds only say how long it takes, to put long cases first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ci.models.cases import Case
from compiler.artifact.files import write_atomically

FOLDER = Path(__file__).parents[2] / "models" / "expected"
EXACT = ("cycles", "instructions", "program_bytes", "constant_bytes", "ddr_bytes")
FEWER_SECONDS, MORE_SECONDS = 0.5, 2.0  # times the seconds that are recorded; within, they stay: every machine differs


def load(model: str, folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """What is recorded of a model's cases, by their variant."""
    path = folder / f"{model}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def recorded(case: Case, folder: Path = FOLDER) -> dict[str, Any] | None:
    return load(case.model, folder).get(case.variant)


def seconds(chosen: Iterable[Case], folder: Path = FOLDER) -> dict[Case, float]:
    """How long the cases took that are recorded."""
    files: dict[str, dict[str, dict[str, Any]]] = {}
    found = {}
    for case in chosen:
        held = files.setdefault(case.model, load(case.model, folder))
        if case.variant in held:
            found[case] = float(held[case.variant]["seconds"])
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What is not as recorded: `cycles 1,000 -> 1,100 (+10.0 %)`."""
    for name in EXACT:
        old, new = before.get(name), now.get(name)
        if old != new:
            change = (
                f" ({100 * (new - old) / old:+.1f} %)" if isinstance(old, int) and isinstance(new, int) and old else ""
            )
            yield f"{name} {_number(old)} -> {_number(new)}{change}"


def store(case: Case, facts: Mapping[str, Any], folder: Path = FOLDER) -> None:
    """Put a case's facts in the place of those that are there."""
    held = load(case.model, folder)
    entry = {name: facts[name] for name in (*EXACT, "seconds", "trail")}
    old = held.get(case.variant, {}).get("seconds")
    new = max(1, round(facts["seconds"]))
    entry["seconds"] = old if old and FEWER_SECONDS * old <= new <= MORE_SECONDS * old else new
    held[case.variant] = entry
    _write(case.model, held, folder)


def keep_only(model: str, variants: Iterable[str], folder: Path = FOLDER) -> None:
    """Forget cases that there are no more."""
    held, kept = load(model, folder), set(variants)
    if not held.keys() <= kept:
        _write(model, {name: entry for name, entry in held.items() if name in kept}, folder)


def _write(model: str, held: Mapping[str, Any], folder: Path) -> None:
    text = json.dumps(dict(sorted(held.items())), indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{model}.json", lambda file: file.write(text.encode()), "the record")


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "unknown"
