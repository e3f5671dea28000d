"""GroupOperators: which operators share a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler import graph
from compiler.frontend import import_model
from compiler.target import load_chip
from passes.graph.group_operators import GroupOperators

CHIP = load_chip("tw1")


def groups(
    nodes: list[Any], inputs: dict[str, tuple[int, ...]], outputs: list[str], precision: str = "fp32", **options: Any
) -> list[list[str]]:
    """The operators of each group of a model, in the order of the kernels; a view stands in brackets."""
    grouped = grouped_module(nodes, inputs, outputs, precision, **options)
    found = []
    for call in graph.read(grouped["main"]).calls:
        callee = grouped[call.callee]
        if graph.attribute(callee, "tw.group") is None:
            found.append([f"[{graph.attribute(callee, 'tw.operator')}]"])
            continue
        members = graph.read(callee).calls
        found.append([str(graph.attribute(grouped[member.callee], "tw.operator")) for member in members])
    return found


def grouped_module(
    nodes: list[Any],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    precision: str = "fp32",
    opset: int = 17,
    **options: Any,
) -> Any:
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [
                helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
                *(helper.make_tensor(f"part{at}", TensorProto.INT64, [], [at]) for at in range(3)),
            ],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    module = import_model(model.SerializeToString(), precision=precision).module
    return GroupOperators(**options).run(module, CHIP)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def test_elementwise_operators_follow_a_product() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Relu", "c", "y")]
    shapes = {"x": (4, 8), "w": (8, 6), "b": (6,)}
    assert groups(nodes, shapes, ["y"]) == [["MatMul", "Add", "Relu"]]


def test_what_two_operators_read_ends_a_group() -> None:
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "a", "b"), node("Tanh", "a", "c")]
    assert groups(nodes, {"x": (4, 8)}, ["b", "c"]) == [["Relu"], ["Sigmoid"], ["Tanh"]]


def test_operators_that_end_on_one_follow_together() -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Sigmoid", "a", "b"),
        node("Tanh", "a", "c"),
        node("Mul", "b c", "d"),
        node("Add", "a d", "e"),
        node("Relu", "e", "f"),
        node("Tanh", "f", "y"),
        node("Neg", "f", "z"),
    ]
    swish = ["MatMul", "Sigmoid", "Tanh", "Mul", "Add", "Relu"]
    shapes = {"x": (4, 8), "w": (8, 6)}
    assert groups(nodes, shapes, ["y", "z"]) == [swish, ["Tanh"], ["Neg"]]
    assert groups(nodes, shapes, ["y", "z"], operators=4)[0] == ["MatMul"]


def test_what_leaves_between_keeps_all_of_them_out() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Sigmoid", "a", "b"), node("Mul", "a b", "y")]
    shapes = {"x": (4, 8), "w": (8, 6)}
    assert groups(nodes, shapes, ["y"]) == [["MatMul", "Sigmoid", "Mul"]]
    assert groups(nodes, shapes, ["b", "y"])[0] == ["MatMul"]
    summed = [*nodes[:2], node("ReduceSum", "a", "c", keepdims=1), node("Mul", "a b", "d"), node("Mul", "d c", "y")]
    assert groups(summed, shapes, ["y"])[0] == ["MatMul"]


def test_a_result_of_the_model_leaves_the_chip() -> None:
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "a", "y")]
    assert groups(nodes, {"x": (4, 8)}, ["a", "y"]) == [["Relu"], ["Sigmoid"]]


def test_a_reduction_takes_what_comes_before_it_along() -> None:
    nodes = [node("Exp", "x", "a"), node("ReduceMax", "a", "b", axes=[1]), node("Sqrt", "b", "y")]
    assert groups(nodes, {"x": (4, 8)}, ["y"]) == [["Exp", "ReduceMax", "Sqrt"]]


def test_a_broadcast_begins_a_new_group() -> None:
    nodes = [node("ReduceMax", "x", "a", axes=[1]), node("Sub", "x a", "y")]
    assert groups(nodes, {"x": (4, 8)}, ["y"]) == [["ReduceMax"], ["Sub"]]


def test_attention_is_one_kernel() -> None:
    nodes = [
        node("MatMul", "q k", "s"),
        node("Mul", "s half", "t"),
        node("Softmax", "t", "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]
    shapes = {"q": (2, 16, 8), "k": (2, 8, 12), "v": (2, 12, 8)}
    assert groups(nodes, shapes, ["y"]) == [["MatMul", "Mul", "tilewright::Softmax", "MatMul"]]


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_so_is_that_of_the_operator_whose_queries_may_share_keys(kv_heads: int) -> None:
    shapes = {"q": (1, 8, 16, 8), "k": (1, kv_heads, 16, 8), "v": (1, kv_heads, 16, 8)}
    found = groups([node("Attention", "q k v", "y", is_causal=1)], shapes, ["y"], opset=23)
    assert ["Transpose", "MatMul", "Add", "tilewright::Softmax", "MatMul"] in found


def test_scores_that_somebody_else_reads_are_no_attention() -> None:
    nodes = [
        node("MatMul", "q k", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p v", "y"),
        node("Relu", "p", "z"),
    ]
    shapes = {"q": (2, 16, 8), "k": (2, 8, 12), "v": (2, 12, 8)}
    assert groups(nodes, shapes, ["y", "z"]) == [["MatMul"], ["tilewright::Softmax"], ["MatMul"], ["Relu"]]


def test_a_product_reads_a_transposed_operand_where_it_was() -> None:
    nodes = [node("Transpose", "b", "t", perm=[0, 2, 1]), node("MatMul", "a t", "y")]
    shapes = {"a": (2, 16, 8), "b": (2, 12, 8)}
    assert groups(nodes, shapes, ["y"]) == [["Transpose", "MatMul"]]
    assert groups(nodes, shapes, ["y", "t"]) == [["Transpose"], ["MatMul"]]


def test_so_it_does_the_first_one_and_stores_what_is_turned_where_it_belongs() -> None:
    nodes = [
        node("Transpose", "a", "t", perm=[0, 2, 1]),
        node("MatMul", "t b", "m"),
        node("Add", "m row", "s"),
        node("Transpose", "s", "y", perm=[0, 2, 1]),
    ]
    shapes = {"a": (2, 8, 16), "b": (8, 12), "row": (12,)}
    assert groups(nodes, shapes, ["y"]) == [["Transpose", "MatMul", "Add", "Transpose"]]
    assert groups(nodes, shapes, ["y", "s"]) == [["Transpose", "MatMul", "Add"], ["Transpose"]]


@pytest.mark.parametrize(("perm", "joins"), [([0, 3, 1, 2], True), ([0, 3, 2, 1], False), ([0, 1, 3, 2], True)])
def test_rows_of_several_axes_are_turned_as_one(perm: list[int], joins: bool) -> None:
    nodes = [node("MatMul", "a b", "m"), node("Transpose", "m", "y", perm=perm)]
    shapes = {"a": (2, 5, 16, 8), "b": (8, 12)}
    assert groups(nodes, shapes, ["y"]) == ([["MatMul", "Transpose"]] if joins else [["MatMul"], ["Transpose"]])


def test_keys_that_are_transposed_belong_to_attention() -> None:
    nodes = [
        node("MatMul", "q w", "r"),
        node("Transpose", "k", "t", perm=[0, 2, 1]),
        node("MatMul", "r t", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]
    shapes = {"q": (2, 16, 8), "w": (8, 8), "k": (2, 12, 8), "v": (2, 12, 8)}
    assert groups(nodes, shapes, ["y"]) == [["MatMul"], ["Transpose", "MatMul", "tilewright::Softmax", "MatMul"]]


PARTS = [
    node("Transpose", "x", "j", perm=[2, 0, 3, 1, 4]),
    *(node("Gather", f"j part{at}", name, axis=0) for at, name in enumerate("qkv")),
]
ATTENTION = [
    node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
    node("MatMul", "q t", "s"),
    node("Softmax", "s", "p", axis=-1),
    node("MatMul", "p v", "o"),
    node("Transpose", "o", "y", perm=[0, 2, 1, 3]),
]


@pytest.mark.parametrize("batch", [1, 2])
def test_attention_reads_all_three_where_one_product_put_them(batch: int) -> None:
    """What they share is there for each of them: an operand of its own, with tiles of its own."""
    moves = ["Gather", "Gather", "Gather", "Transpose", "Transpose", "Transpose", "Transpose"]
    products = ["MatMul", "tilewright::Softmax", "MatMul", "Transpose"]
    shapes = {"x": (batch, 16, 3, 2, 8)}
    (group,) = groups([*PARTS, *ATTENTION], shapes, ["y"])
    assert sorted(group[:7]) == moves
    assert group[7:] == products
    several = groups([*PARTS, *ATTENTION], shapes, ["y", "j"])
    assert several[0] == ["Transpose"]
    assert several[1][-4:] == products


def test_one_row_of_a_product_is_no_transposition_of_it() -> None:
    """Each row would be stored as that one."""
    known = {"from": [0], "to": [1], "axis": [1]}
    constants = [node("Constant", "", name, value_ints=value) for name, value in known.items()]
    nodes = [*constants, node("MatMul", "a b", "m"), node("Slice", "m from to axis", "y")]
    assert groups(nodes, {"a": (1, 16, 8), "b": (8, 12)}, ["y"]) == [["MatMul"], ["Slice"]]


@pytest.mark.parametrize(("perm", "joins"), [([0, 2, 1, 3], True), ([1, 0, 2, 3], True), ([0, 1, 3, 2], False)])
def test_results_of_attention_are_stored_where_they_belong(perm: list[int], joins: bool) -> None:
    nodes = [*ATTENTION[:-1], node("Transpose", "o", "y", perm=perm)]
    shapes = {name: (2, 3, 16, 8) for name in "qkv"}
    attention = ["Transpose", "MatMul", "tilewright::Softmax", "MatMul"]
    assert groups(nodes, shapes, ["y"]) == ([[*attention, "Transpose"]] if joins else [attention, ["Transpose"]])
    assert groups(nodes, shapes, ["y", "o"]) == [attention, ["Transpose"]]


def test_a_factor_of_an_operand_is_one_of_the_product() -> None:
    nodes = [node("Mul", "a half", "s"), node("MatMul", "s b", "y")]
    shapes = {"a": (16, 8), "b": (8, 12)}
    assert groups(nodes, shapes, ["y"], "fp16") == [["Mul", "MatMul"]]
    assert groups(nodes, shapes, ["y", "s"], "fp16") == [["Mul"], ["MatMul"]]
    assert groups(nodes, shapes, ["y"]) == [["Mul"], ["MatMul"]]  # a sum in fp32 may overflow
    assert groups([node("Mul", "a a", "s"), nodes[1]], shapes, ["y"], "fp16") == [["Mul"], ["MatMul"]]


@pytest.mark.parametrize(("perm", "first", "second"), [
    ([0, 2, 1], True, True), ([1, 0, 2], True, True), ([1, 2, 0], True, True), ([2, 1, 0], False, False),
])  # fmt: skip
def test_operands_with_runs_of_elements_are_read_where_they_were(perm: list[int], first: bool, second: bool) -> None:
    """What is loaded has to lie side by side along a row or along a column."""
    for read, shapes in ((second, {"a": (2, 16, 8), "b": (2, 8, 12)}), (first, {"b": (2, 16, 8), "a": (2, 8, 12)})):
        inputs = ["a t", "t a"][shapes["b"] == (2, 16, 8)]
        nodes = [node("Transpose", "b", "t", perm=perm), node("MatMul", inputs, "y")]
        stored = [0, 0, 0]
        for place, axis in enumerate(perm):
            stored[axis] = shapes["b"][place]
        found = groups(nodes, {"a": shapes["a"], "b": tuple(stored)}, ["y"])
        assert found == ([["Transpose", "MatMul"]] if read else [["Transpose"], ["MatMul"]])


GATE = [node("Sigmoid", "b", "s"), node("Mul", "a s", "y")]


@pytest.mark.parametrize(("batch", "taken"), [(3, True), (1, False)])
def test_elementwise_work_reads_parts_where_they_are_unless_they_need_no_kernel(batch: int, taken: bool) -> None:
    split = helper.make_node("Split", ["x"], ["a", "b"], axis=1)
    gate = ["Split", "Split", "Sigmoid", "Mul"] if taken else ["Sigmoid", "Mul"]
    assert groups([split, *GATE], {"x": (batch, 8, 6)}, ["y"]) == [["Split"]] * (0 if taken else 2) + [gate]


def test_a_part_that_somebody_else_reads_is_made() -> None:
    split = helper.make_node("Split", ["x"], ["a", "b"], axis=1)
    nodes = [split, *GATE, node("MatMul", "a w", "z")]
    found = groups(nodes, {"x": (3, 8, 6), "w": (6, 4)}, ["y", "z"])
    assert sorted(found) == [["MatMul"], ["Split"], ["Split", "Sigmoid", "Mul"]]


def test_what_puts_elements_in_another_order_is_a_kernel() -> None:
    nodes = [node("Transpose", "x", "a", perm=[1, 0]), node("Relu", "a", "y")]
    assert groups(nodes, {"x": (4, 8)}, ["y"]) == [["Transpose"], ["Relu"]]


@pytest.mark.parametrize(("operator", "inputs"), [("MatMul", 3), ("Softmax", 1)])
def test_a_product_that_is_added_to_its_own_operand_reads_it_twice(operator: str, inputs: int) -> None:
    """Tiles of the operand and of what is added are not the same; rows that a softmax holds are."""
    first = node(operator, "x w" if operator == "MatMul" else "x", "a")
    nodes = [first, node("Add", "x a", "y")]
    grouped = grouped_module(nodes, {"x": (8, 8), "w": (8, 8)}, ["y"])
    (call,) = graph.read(grouped["main"]).calls
    assert len(call.arguments) == inputs


def test_a_group_is_bounded() -> None:
    nodes = [node("Relu", "x", "a0"), *(node("Sigmoid", f"a{k}", f"a{k + 1}") for k in range(5))]
    assert [len(group) for group in groups(nodes, {"x": (4, 8)}, ["a5"], operators=4)] == [4, 2]


def test_views_stay_alone() -> None:
    nodes = [node("Relu", "x", "a"), node("Flatten", "a", "b"), node("Sigmoid", "b", "y")]
    assert groups(nodes, {"x": (4, 2, 3)}, ["y"]) == [["Relu"], ["[Flatten]"], ["Sigmoid"]]


@pytest.mark.parametrize("seed", range(5))
def test_every_call_is_in_one_group_and_after_what_it_reads(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = [node("Relu", "x", "a0")]
    for k in range(1, 20):
        first, second = rng.integers(0, k, 2)
        nodes.append(node(str(rng.choice(["Add", "Mul", "Sub"])), f"a{first} a{second}", f"a{k}"))
    found = groups(nodes, {"x": (3, 5)}, ["a19", "a18"])
    assert 1 <= len(found) <= 20
