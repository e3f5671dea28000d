"""Tasks spread over a Ray cluster, whose workers may die: `--engine ray --address HOST:PORT`.

Ray starts a task again whose worker is gone; an outcome is reported when its task has ended, so once. Each worker needs
the packages of `requirements-ray.lock`; the project's own files come from here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from ci.models.cases import Task, parsed
from ci.models.observe import Options
from ci.models.outcome import Outcome
from ci.models.processes import ROOT, of_task
from compiler.errors import Problem, UsageError

RETRIES = 3
REACH_SECONDS = 10
NOT_SENT = [
    ".git",
    ".venv",
    ".venv-ray",
    "build",
    "dist",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    "docs",
    "/tests",
]


def outcomes(tasks: Sequence[Task], options: Options, address: str, timeout: float) -> Iterator[Outcome]:
    """All cases of all tasks as they end, on as many cores as the cluster has."""
    try:
        import ray
    except ImportError as error:
        hint = "`pip install --require-hashes -r requirements-ray.lock`, or --engine local"
        raise UsageError(Problem("TW0002", "the package ray is not installed", hint=hint)) from error
    _connect(ray, address)
    try:
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(observed)
        running = {remote.remote([str(case) for case in task.cases], asdict(options), timeout): task for task in tasks}
        while running:
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            task = running.pop(ready)
            try:
                found = [Outcome.from_dict(each) for each in ray.get(ready)]
            except ray.exceptions.RayError as error:
                reason = f"no worker of the cluster lived to its end: {type(error).__name__}"
                found = [Outcome(case, (), reason) for case in task.cases]
            yield from found
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Workers on this machine take the project's files as they are; if there are others, all get a copy."""
    options = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    try:
        host, colon, port = address.rpartition(":")
        if colon and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), REACH_SECONDS).close()
        ray.init(**options, runtime_env={"env_vars": {"PYTHONPATH": paths}})
        if {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]} != {socket.gethostname()}:
            ray.shutdown()
            ray.init(**options, runtime_env={"working_dir": str(ROOT), "excludes": NOT_SENT})
    except (OSError, RuntimeError, ValueError) as error:
        hint = "`ray start --head` starts one on this machine, and says its address"
        raise UsageError(Problem("TW0002", f"there is no Ray cluster at {address}: {error}", hint=hint)) from error


def observed(cases: Sequence[str], options: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
    """What a worker does; arguments and results are plain, so that no class has to be the same on both sides."""
    import ray

    worker = f"node {ray.get_runtime_context().get_node_id()[:8]}, process {os.getpid()}"
    task = Task(tuple(map(parsed, cases)))
    return [replace(each, worker=worker).to_dict() for each in of_task(task, Options(**options), timeout)]
