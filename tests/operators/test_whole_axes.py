"""Stages that read others where data says, as readers of whole axes of these."""

from __future__ import annotations

import tvm
from tvm import te
from tvm.script import tirx as T

from compiler.operators.gathering import pick_in_rows
from compiler.tir.whole_axes import whole_axes


def test_what_another_stage_makes_is_read_along_the_whole_axis() -> None:
    @T.prim_func(s_tir=True)
    def after(
        data: T.Buffer((3, 64), "float16"), places: T.Buffer((3, 5), "int32"), picked: T.Buffer((3, 5), "float16")
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        index = T.sblock_alloc_buffer((3, 5), "int32")
        table = T.sblock_alloc_buffer((3, 64), "float16")
        for i, j in T.grid(3, 5):
            with T.sblock("index"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(places[v_i, v_j])
                T.writes(index[v_i, v_j])
                index[v_i, v_j] = T.Select(places[v_i, v_j] < 0, places[v_i, v_j] + 64, places[v_i, v_j])
        for i, j in T.grid(3, 64):
            with T.sblock("table"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(data[v_i, v_j])
                T.writes(table[v_i, v_j])
                table[v_i, v_j] = data[v_i, v_j]
        for i, j in T.grid(3, 5):
            with T.sblock("picked"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(table[v_i, 0:64], index[v_i, v_j])
                T.writes(picked[v_i, v_j])
                picked[v_i, v_j] = table[v_i, index[v_i, v_j]]

    data, places = te.placeholder((3, 64), "float16", "data"), te.placeholder((3, 5), "int32", "places")
    made = whole_axes(te.create_prim_func([data, places, pick_in_rows(data, places)])).with_attr(
        "global_symbol", "after"
    )
    tvm.ir.assert_structural_equal(made, after, map_free_vars=True)


def test_inputs_are_read_where_data_says() -> None:
    data, places = te.placeholder((3, 640), "float16", "data"), te.placeholder((3, 5), "int32", "places")
    func = te.create_prim_func([data, places, pick_in_rows(data, places)])
    assert whole_axes(func).body.same_as(func.body)
