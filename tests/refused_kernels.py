"""Kernels that find no road, where a test wants to see what becomes of their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compiler import model_kernels
from compiler.kernel_pool import Job
from compiler.kernels import NoRoadLeft, Road

REFUSED = Road("emission", "for a test")


def refuse(monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[Job], bool], road: Road = REFUSED) -> None:
    """Let these kernels have no other road."""
    compile_jobs = model_kernels.compile_jobs

    def refusing(jobs: Any, *rest: Any) -> list[Any]:
        results = compile_jobs(jobs, *rest)
        return [
            NoRoadLeft(job.name, [road]) if is_refused(job) else result
            for job, result in zip(jobs, results, strict=True)
        ]

    monkeypatch.setattr(model_kernels, "compile_jobs", refusing)


def refuse_node(monkeypatch: pytest.MonkeyPatch, name: str, road: Road = REFUSED) -> None:
    """Let kernels of the node of this name have no other road."""
    refuse(monkeypatch, lambda job: name in job.name.split("+"), road)
