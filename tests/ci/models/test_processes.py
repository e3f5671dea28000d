"""Every case ends in exactly one outcome, whatever becomes of the process that it is in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci.models import processes
from ci.models.cases import Case, Task
from ci.models.observe import Options
from ci.models.processes import of_task, outcomes

FIRST, SECOND, THIRD = (Case("m", chip, "fp16") for chip in ("tiny", "tw1", "tw2"))
TASK = Task((FIRST, SECOND, THIRD))
# Stands for `ci.models.observe`: answers for its cases, until it comes to what the test plants.
WORKER = """
import json, os, signal, sys, time
asked = json.loads(sys.stdin.readline())
def say(**answer): print(json.dumps(answer), flush=True)
for case in asked["cases"]:
    say(begun=case)
    say(stage={"stage": "import", "seconds": 0.0, "found": {}})
    planted = PLANTED.get(case)
    marker = MARKER + case.replace("/", "-")
    if planted and not (planted.startswith("once ") and os.path.exists(marker)):
        open(marker, "w").close()
        if "kill" in planted: os.kill(os.getpid(), signal.SIGKILL)
        if "crash" in planted: print("it broke", file=sys.stderr); os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in planted: time.sleep(60)
    passed = [{"stage": s, "seconds": 0.0, "found": {}} for s in ("import", "compile", "run", "match", "perf")]
    say(outcome={"case": case, "passed": passed, "error": "", "facts": {}, "culprit": "", "expected": "", "worker": ""})
"""


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What becomes of the process at a case: kill, crash or hang; only the first time with ``once``."""
    planted: dict[str, str] = {}
    genuine = processes.subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        source = f"PLANTED = {planted!r}\nMARKER = {str(tmp_path / 'met-')!r}\n{WORKER}"
        return genuine([sys.executable, "-c", source], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    yield planted


def observed(timeout: float = 30) -> dict[Case, str]:
    found = list(of_task(TASK, Options(), timeout))
    assert [each.case for each in found] == [FIRST, SECOND, THIRD]
    return {each.case: each.error for each in found}


def test_all_is_well(plant: dict[str, str]) -> None:
    assert set(observed().values()) == {""}


def test_a_crash_fails_one_case_at_its_stage(plant: dict[str, str]) -> None:
    plant[str(SECOND)] = "crash"
    found = list(of_task(TASK, Options(), 30))
    assert [each.failed for each in found] == ["", "compile", ""]
    assert found[1].error == "it broke"


def test_a_case_whose_process_is_killed_is_tried_once_more(plant: dict[str, str]) -> None:
    plant[str(SECOND)] = "once kill"
    assert set(observed().values()) == {""}


def test_a_case_whose_process_is_killed_again_has_failed(plant: dict[str, str]) -> None:
    plant[str(SECOND)] = "kill"
    assert observed() == {FIRST: "", SECOND: "its process was killed 2 times", THIRD: ""}


def test_an_endless_loop_ends_one_case(plant: dict[str, str]) -> None:
    plant[str(SECOND)] = "hang"
    assert observed(1.0) == {FIRST: "", SECOND: "not done within 1 s", THIRD: ""}


def test_several_tasks_at_a_time_are_reported_once_each(plant: dict[str, str]) -> None:
    plant["b/tw1/fp16"] = "once kill"
    tasks = [Task(tuple(Case(name, chip, "fp16") for chip in ("tiny", "tw1"))) for name in "abcd"]
    found = [each.case for each in outcomes(tasks, Options(), 3, 30)]
    assert sorted(found) == sorted(case for task in tasks for case in task.cases)


def test_a_worker_ends_when_nobody_waits_for_it_any_more() -> None:
    process = processes.subprocess.Popen(
        [sys.executable, "-c", "import time\nfrom ci.models.observe import _end_with_parent\n_end_with_parent()\n"
         "print('ready', flush=True)\ntime.sleep(60)"],
        cwd=processes.ROOT, stdin=processes.subprocess.PIPE, stdout=processes.subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "ready\n"
    process.stdin.close()
    assert process.wait(10) == 3
    process.stdout.close()


def test_a_process_takes_several_tasks_and_fewer_towards_the_end() -> None:
    tasks = [Task((Case(f"m{at}", "tw1", "fp16"),)) for at in range(40)]
    batches = processes.together(tasks, 2)
    sizes = [len(each.cases) for each in batches]
    assert [case for each in batches for case in each.cases] == [case for task in tasks for case in task.cases]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1 == sizes[-1]
    assert processes.together(tasks[:1], 8) == tasks[:1]
