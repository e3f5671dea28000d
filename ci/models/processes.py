"""Tasks in processes of their own: a crash or an endless loop ends one case, at a stage that is known.

Every case of a task ends in exactly one outcome, whatever becomes of the process: it answers; or it dies with a case,
which failed then, and another process takes the rest; or somebody kills it, and the case is tried once more.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from ci.models.cases import Case, Task
from ci.models.observe import Options
from ci.models.outcome import Outcome, Passed

ROOT = Path(__file__).parents[2]
KILLS = 2  # after which a case whose process was killed counts as failed: it may be what exhausts the machine
MOST_TASKS = 8  # that one process takes
SETUP_SECONDS = 300  # to start, build the model and run it by onnxruntime


def outcomes(tasks: Sequence[Task], options: Options, jobs: int, timeout: float) -> Iterator[Outcome]:
    """All cases of all tasks as they end, from ``jobs`` processes at a time, each of which takes several tasks."""
    ended: queue.Queue[Outcome | BaseException | None] = queue.Queue()

    def work(task: Task) -> None:
        try:
            for outcome in of_task(task, options, timeout):
                ended.put(outcome)
        except BaseException as error:  # noqa: BLE001  raised where the outcomes are waited for
            ended.put(error)

    with ThreadPoolExecutor(jobs) as pool:
        done = [pool.submit(work, task) for task in together(tasks, jobs)]
        threading.Thread(target=lambda: [each.exception() for each in done] and ended.put(None), daemon=True).start()
        while (found := ended.get()) is not None:
            if isinstance(found, BaseException):
                pool.shutdown(cancel_futures=True)
                raise found
            yield found


def together(tasks: Sequence[Task], jobs: int) -> list[Task]:
    """The cases of several tasks as those of one, in order: to start a process takes as long as many a small model
    does. Towards the end these are fewer, so that all processes end at nearly the same time.
    """
    found, left = list[Task](), list(tasks)
    while left:
        count = max(1, min(MOST_TASKS, len(left) // (4 * jobs)))
        found.append(Task(tuple(case for task in left[:count] for case in task.cases)))
        left = left[count:]
    return found


def of_task(task: Task, options: Options, timeout: float) -> Iterator[Outcome]:
    """One outcome for each case, in order."""
    waiting, kills = list(task.cases), 0
    while waiting:
        for outcome in _Process(waiting, options, timeout).outcomes():
            if outcome is None:  # killed: not the case's fault, as far as is known
                kills += 1
                if kills < KILLS:
                    break
                outcome = Outcome(waiting[0], (), f"its process was killed {kills} times")
            kills = 0
            waiting.pop(0)
            yield outcome


class _Process:
    """A process of `ci.models.observe` that was asked for some cases."""

    def __init__(self, cases: Sequence[Case], options: Options, timeout: float) -> None:
        self._cases, self._options, self._timeout = list(cases), options, timeout

    def outcomes(self) -> Iterator[Outcome | None]:
        """An outcome per case until the process ends; None if somebody killed it, and nothing after that."""
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ci.models.observe"],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
            try:
                yield from self._answered(process, errors)
            finally:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe:
                        pipe.close()

    def _answered(self, process: subprocess.Popen[str], errors: IO[str]) -> Iterator[Outcome | None]:
        assert process.stdin and process.stdout
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        asked = {"cases": [str(case) for case in self._cases], "options": asdict(self._options)}
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already, which shows below
        for case in self._cases:
            answer = self._of_case(lines)
            if isinstance(answer, Outcome):
                yield answer
                continue
            passed, late = answer
            status = None if late else process.wait()
            if status == -signal.SIGKILL:
                yield None
                return
            errors.seek(0)
            said = f"not done within {self._timeout:g} s" if late else errors.read().strip()
            yield Outcome(case, passed, said or f"the process ended with status {status} and no message")
            return

    def _of_case(self, lines: queue.Queue[str]) -> Outcome | tuple[tuple[Passed, ...], bool]:
        """The outcome of the next case; or if there is none what it passed, and whether it took too long."""
        passed: list[Passed] = []
        end = time.monotonic() + SETUP_SECONDS + self._timeout
        while True:
            try:
                line = lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return tuple(passed), True
            answer = _parsed(line)
            if answer is None:
                return tuple(passed), False
            if "begun" in answer:
                end = time.monotonic() + self._timeout
            elif "stage" in answer:
                passed.append(Passed(**answer["stage"]))
            else:
                return Outcome.from_dict(answer["outcome"])


def _read(pipe: IO[str], lines: queue.Queue[str]) -> None:
    for line in pipe:
        if line.startswith("{"):  # whatever else a library prints
            lines.put(line)
    lines.put("")


def _parsed(line: str) -> dict[str, Any] | None:
    """None at the end, and for half a line, which a process leaves that dies."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return None
