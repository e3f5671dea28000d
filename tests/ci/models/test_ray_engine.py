"""The model regression on a real Ray cluster on this machine: a worker is killed, and every case is reported once.

Ray is no development dependency: `make test-ray` makes an environment with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.models.__main__ import main
from ci.models.cases import cases

ray = pytest.importorskip("ray")
ROOT = Path(__file__).parents[3]
WORKERS = 3
STORE_BYTES = 100 << 20
CHOSEN = ("--tier", "smoke", "--chip", "tiny")
SECONDS = 600

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that computes nothing, and workers of one core."""
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
    try:
        for _ in range(WORKERS):
            found.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        yield found
    finally:
        found.shutdown()


def observing(session: str) -> dict[int, int]:
    """The processes that observe cases in this session of Ray, each with the worker that waits for it."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if b"ci.models.observe" in (folder / "cmdline").read_bytes():
                worker = parent(int(folder.name))
                if session.encode() in Path(f"/proc/{parent(worker)}/cmdline").read_bytes():
                    found[int(folder.name)] = worker
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_worker_loses_no_case_and_reports_none_twice(cluster: Any, tmp_path: Path) -> None:
    session = Path(cluster.head_node.get_session_dir_path()).name
    command = [
        sys.executable, "-m", "ci.models", *CHOSEN, "--engine", "ray", "--address", cluster.address,
        "--record", "--expected", str(tmp_path / "expected"), "--journal", str(tmp_path / "journal"),
        "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end, killed = time.monotonic() + SECONDS, 0
        while not killed and process.poll() is None and time.monotonic() < end:
            busy = observing(session)
            if len(busy) > 1:
                observer, killed = busy.popitem()
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.1)
        shown = process.communicate(timeout=SECONDS)[0]
    finally:
        process.kill()
        process.wait()
    assert killed, shown
    assert process.returncode == 0, shown
    expected = sorted(map(str, cases("smoke", [], ["tiny"], [])))
    found = json.loads((tmp_path / "out" / "results.json").read_text())["cases"]
    assert sorted(case["case"] for case in found) == expected
    for case in expected:
        assert shown.count(f"{case} ") == 1
    assert not any(case["worker"].endswith(f"process {killed}") for case in found)
    assert len({case["worker"] for case in found}) > 1
    assert not Path(f"/proc/{observer}").exists()  # what the killed worker had started has ended, too


def test_without_a_cluster_the_error_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "mlp-256", "--engine", "ray", "--address", "127.0.0.1:1"]) != 0
    assert "there is no Ray cluster at 127.0.0.1:1" in capsys.readouterr().err
