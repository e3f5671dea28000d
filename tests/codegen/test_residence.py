"""When the bytes of a buffer are needed, where others are parts of it, and what that leaves for others."""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.packing import Span
from compiler.codegen.residence import KEPT_SHARE, GraphBuffer, _lifetimes, foresee
from compiler.target import load_chip

TW2 = load_chip("tw2")


def buffer(name: str, size: int, whole: str = "", offset: int = 0) -> GraphBuffer:
    return GraphBuffer(name, "int8", (size,), size, "intermediate", whole, offset)


def test_parts_are_needed_from_when_they_are_made_and_as_long_as_the_whole() -> None:
    buffers = [buffer("y", 100), buffer("y0", 40, "y"), buffer("y1", 60, "y", 40), buffer("x", 10)]
    lives = _lifetimes([["x", "y0"], ["x", "y1"], ["y", "z"]], buffers)
    assert (lives["y"].first, lives["y"].last) == (0, 2)
    assert lives["y"].spans == (Span(0, 40, 0, 2), Span(40, 100, 1, 2))
    assert not lives["x"].spans and not lives["z"].spans


def test_parts_are_needed_until_the_last_one_reads_any_of_their_bytes() -> None:
    buffers = [buffer("y", 100), buffer("a", 40, "y"), buffer("b", 60, "y", 40), buffer("c", 40, "y", 20)]
    lives = _lifetimes([["y"], ["a"], ["c"], ["b"]], buffers)
    assert lives["y"].spans == (Span(0, 20, 0, 1), Span(20, 40, 0, 2), Span(40, 100, 0, 3))
    assert not _lifetimes([["a", "b"], ["y"]], buffers)["y"].spans


def test_what_is_made_in_pieces_leaves_room_until_its_last_piece_is_made() -> None:
    """Two halves, one after another, and beside the first of them something as large as that."""
    size = int(TW2.memory_bytes("llb") * KEPT_SHARE) // 4 // 1024 * 1024
    halves = [buffer("y", 2 * size), buffer("y0", size, "y"), buffer("y1", size, "y", size)]
    others = [buffer("x", 3 * size), buffer("z", 2 * size)]
    steps = [["x", "y0"], ["x", "y0"], ["z", "y1"], ["y", "z"]]
    assert foresee(steps, [*halves, *others], TW2).near == {"x", "y", "y0", "y1", "z"}
    apart = [replace(each, whole="", offset=0) for each in halves]
    assert foresee([["x", "y"], ["x", "y"], ["z", "y"], ["y", "z"]], [*apart, *others], TW2).near != {"x", "y", "z"}
