"""The order of pieces, and what is cut and joined for them."""

from __future__ import annotations

from typing import Any

import pytest

from compiler import graph
from compiler.frontend import import_model
from compiler.schedule.cuts import Cuts
from compiler.schedule.plan import Cut, Join, Run, order, steps_of
from compiler.target import load_chip
from passes.graph.group_operators import GroupOperators
from tests.test_driver import model, node


@pytest.mark.parametrize(("counts", "expected"), [
    ([1, 1], "0.0 1.0"),
    ([2, 2], "0.0 1.0 0.1 1.1"),
    ([4, 2, 1], "0.0 0.1 1.0 0.2 0.3 1.1 2.0"),
    ([4, 1, 2], "0.0 0.1 0.2 0.3 1.0 2.0 2.1"),
    ([3, 2], "0.0 0.1 0.2 1.0 1.1"),
    ([2, 4, 4], "0.0 0.1 1.0 2.0 1.1 2.1 1.2 2.2 1.3 2.3"),
])  # fmt: skip
def test_pieces_run_depth_first(counts: list[int], expected: str) -> None:
    assert " ".join(f"{at}.{number}" for at, number in order(counts)) == expected


@pytest.mark.parametrize(("counts", "breaks", "expected"), [
    ([2, 2], {1}, "0.0 0.1 1.0 1.1"),
    ([4, 2, 1], {1}, "0.0 0.1 0.2 0.3 1.0 1.1 2.0"),
    ([4, 2, 1], {2}, "0.0 0.1 1.0 0.2 0.3 1.1 2.0"),
    ([4, 4, 2, 2], {1}, "0.0 0.1 0.2 0.3 1.0 1.1 2.0 3.0 1.2 1.3 2.1 3.1"),
])  # fmt: skip
def test_before_a_break_all_pieces_are_done(counts: list[int], breaks: set[int], expected: str) -> None:
    assert " ".join(f"{at}.{number}" for at, number in order(counts, breaks)) == expected


NODES = [node("Softmax", "x", "a"), node("Softmax", "a", "b"), node("Softmax", "b", "c"), node("Add", "c a", "y")]


def steps(counts: list[int], nodes: list[Any] = NODES) -> list[str]:
    module = import_model(model(nodes, {"x": (4, 8)}, ["y"])).module
    grouped = GroupOperators().run(module, load_chip("tiny"))
    body = graph.read(grouped["main"])
    return [_text(step) for step in steps_of(body, Cuts(grouped), counts)]


def _text(step: Any) -> str:
    match step:
        case Run():
            return f"{_name(step.call)}.{step.number} of {step.count}"
        case Cut():
            return f"cut {_piece(step.made)} from {_piece(step.source)}"
        case Join():
            return f"join {_piece(step.made)} from {' '.join(_piece(part) for part in step.parts)}"
    raise AssertionError(step)


def _name(value: Any) -> str:
    """As the model has it: TVM numbers variables anew."""
    return str(value.name).rstrip("0123456789")


def _piece(piece: Any) -> str:
    return f"{_name(piece.value)}[{piece.number}/{piece.count}]"


def test_what_the_model_is_given_is_cut_and_what_it_gives_is_joined() -> None:
    nodes = [node("Softmax", "x", "a"), node("Softmax", "a", "y")]
    assert steps([2, 2], nodes) == [
        "cut x[0/2] from x[0/1]", "a.0 of 2", "y.0 of 2",
        "cut x[1/2] from x[0/1]", "a.1 of 2", "y.1 of 2",
        "join y[0/1] from y[0/2] y[1/2]",
    ]  # fmt: skip


def test_pieces_are_joined_as_far_as_who_reads_them_wants() -> None:
    found = steps([4, 2, 1])
    assert [step for step in found if step.startswith(("cut", "join"))][:5] == [
        "cut x[0/4] from x[0/1]",
        "cut x[1/4] from x[0/1]",
        "join a[0/2] from a[0/4] a[1/4]",
        "cut x[2/4] from x[0/1]",
        "cut x[3/4] from x[0/1]",
    ]
    # What is read in two sizes is joined in both, the larger of the smaller.
    assert found[-3:] == [
        "join b[0/1] from b[0/2] b[1/2]",
        "join a[0/1] from a[0/2] a[1/2]",
        "y.0 of 1",
    ]


def test_where_counts_grow_pieces_are_cut_from_the_whole() -> None:
    assert steps([1, 2, 2])[:4] == [
        "a.0 of 1", "cut a[0/2] from a[0/1]", "b.0 of 2", "y.0 of 2",
    ]  # fmt: skip
