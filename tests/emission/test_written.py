"""Written: which of a buffer's elements stores before a nest have written, whatever the variables around it are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tvm import tirx

from compiler.emission.nest import Nest, Surroundings, nest_of
from tests.emission.nests import buffer, load

ONE = tirx.FloatImm("float32", 1)

Conditions = Callable[[Any], Sequence[Any]]


def _int(value: int) -> Any:
    return tirx.IntImm("int32", value)


class Rows:
    """A buffer of eight rows, stores into it, and a read of row ``at(i)`` for ``i`` up to an extent."""

    def __init__(self) -> None:
        self.surroundings = Surroundings()
        self.rows = buffer("local.ub", "float32", 8, name="rows")
        self.n = tirx.Var("n", "int32")

    def stored(
        self, extents: Sequence[Any], at: Callable[..., Any], where: Callable[..., Any] | None = None, value: Any = ONE
    ) -> Rows:
        variables = [tirx.Var(f"v{k}", "int32") for k in range(len(extents))]
        stmt: Any = tirx.BufferStore(self.rows, value, [at(*variables)])
        if where is not None:
            stmt = tirx.IfThenElse(where(*variables), stmt, None)
        for var, extent in reversed(list(zip(variables, extents, strict=True))):
            self.surroundings.bind(var, extent)
            stmt = tirx.For(var, _int(0), extent, tirx.ForKind.SERIAL, stmt)
        self.surroundings.written.note(stmt)
        return self

    def are_there(self, extent: Any, at: Callable[[Any], Any] = lambda i: i, known: Conditions = lambda i: ()) -> bool:
        nest = self._nest(extent, at)
        return nest.sources[0].is_there(known(nest.loops[0].var))

    def _nest(self, extent: Any, at: Callable[[Any], Any]) -> Nest:
        i = tirx.Var("i", "int32")
        store = tirx.BufferStore(buffer("local.ub", "float32", 8), load(self.rows, at(i)), [i])
        nest = nest_of(tirx.For(i, _int(0), extent, tirx.ForKind.SERIAL, store), self.surroundings)
        assert nest is not None
        return nest


def test_what_no_store_is_known_of_is_there_within_its_bounds() -> None:
    assert Rows().are_there(_int(8))
    assert not Rows().are_there(_int(8), lambda i: i + 1)


def test_rows_of_a_store_without_conditions_are_there() -> None:
    assert Rows().stored([_int(8)], lambda v: v).are_there(_int(8))


@pytest.mark.parametrize("guarded", [True, False])
def test_rows_of_varying_extent_are_there_up_to_it(guarded: bool) -> None:
    rows = Rows()
    if guarded:
        rows.stored([_int(8)], lambda v: v, lambda v: v < rows.n)
    else:
        rows.stored([tirx.min(_int(8), rows.n)], lambda v: v)
    assert not rows.are_there(_int(8))
    assert rows.are_there(_int(8), known=lambda i: [i < rows.n])
    assert rows.are_there(_int(8), known=lambda i: [i < tirx.min(_int(5), rows.n)])
    assert not rows.are_there(_int(7), lambda i: i + 1, lambda i: [i < rows.n])
    assert rows.are_there(_int(7), lambda i: i + 1, lambda i: [i + 1 < rows.n])


def test_rows_stored_in_tiles_follow_from_where_they_are() -> None:
    rows = Rows()
    rows.stored([_int(2), _int(4)], lambda t, v: t * 4 + v, lambda t, v: t * 4 + v < rows.n)
    assert rows.are_there(_int(8), known=lambda i: [i < rows.n])
    assert not rows.are_there(_int(8))


def test_every_second_row_is_not_every_row() -> None:
    rows = Rows()
    rows.stored([_int(4)], lambda v: v * 2, lambda v: v < rows.n)
    assert rows.are_there(_int(4), lambda i: i * 2, lambda i: [i < rows.n])
    assert not rows.are_there(_int(8), known=lambda i: [i < rows.n])


def test_the_first_turn_of_a_sum_writes_it() -> None:
    rows = Rows()
    rows.stored([_int(8), _int(3)], lambda v, k: v, lambda v, k: k.equal(0))
    assert rows.are_there(_int(8))


def test_what_is_changed_in_place_was_not_written_by_that() -> None:
    rows = Rows()
    rows.stored([_int(8)], lambda v: v, lambda v: v < rows.n)
    rows.stored([_int(8)], lambda v: v, value=load(rows.rows, _int(0)) + ONE)
    assert not rows.are_there(_int(8))


def test_what_holds_around_a_nest_is_known() -> None:
    rows = Rows()
    rows.stored([_int(8)], lambda v: v, lambda v: rows.n < 3)
    assert not rows.are_there(_int(8))
    with rows.surroundings.written.under(rows.n < 2):
        assert rows.are_there(_int(8))
