"""Errors as objects: they reach another process whole."""

from __future__ import annotations

import pickle

from compiler.errors import HazardError, Place, Problem


def test_an_error_crosses_to_another_process_with_its_problems() -> None:
    error = HazardError([Problem("TW1401", "deadlock", Place("a.twasm", 3)), Problem("TW1403", "leaked flag")])
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(again) is HazardError
    assert again.problems == error.problems
    assert str(again) == str(error)
