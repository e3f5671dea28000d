"""How many processes work at a time where nobody says."""

from __future__ import annotations

import os

import pytest

from compiler.kernel_pool import processes_for
from compiler.processors import processors


def test_processors_are_those_that_the_process_is_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 6}, raising=False)
    assert processors() == 3
    assert [processes_for(most, None) for most in (1, 2, 8)] == [1, 2, 3]
    assert processes_for(8, 5) == 5


def test_where_the_system_does_not_tell_they_are_all_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert processors() == 64
