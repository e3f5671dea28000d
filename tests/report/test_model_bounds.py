"""Bounds of models and kernels: what is counted, what is not, and that no program beats them."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.report import onnx_facts
from compiler.report.bounds import Recurrence, Work
from compiler.report.model_bounds import ModelWork, model_bound
from compiler.report.profile import Profile, profile
from compiler.target import load_chip
from models import zoo

TINY, TW1 = load_chip("tiny"), load_chip("tw1")
RNG = np.random.default_rng(0)


def node(operator: str, inputs: str, output: str, name: str = "", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), output.split(), name or output, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    for info in graph.output:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def work(*arguments: object, **options: object) -> Work:
    return ModelWork(model(*arguments, **options), "fp16").total  # type: ignore[arg-type]


def of_model(macs: dict[str, int], ddr_bytes: int) -> Work:
    """All the work of a model whose results depend on its inputs."""
    return Work(macs, 0, ddr_bytes, there_and_back=True)


def test_what_operators_make_that_onnx_does_not_know_is_known() -> None:
    """Here it is a row's width, and so what the product behind it takes."""
    nodes = [
        node("MatMul", "x w", "a"),
        node("BiasGelu", "a bias", "b", domain="com.microsoft"),
        node("SkipLayerNormalization", "b a gamma", "c", domain="com.microsoft"),
        node("MatMul", "c v", "y"),
    ]
    constants = {"w": weights(8, 32), "bias": weights(32), "gamma": weights(32), "v": weights(32, 2000)}
    found = work(nodes, {"x": (4, 8)}, ["y"], constants)
    assert found.macs == {"fp16": 4 * 8 * 32 + 4 * 32 * 2000}
    assert found.ddr_bytes >= 2 * (4 * 8 + 4 * 2000 + 32 * 2000)


def test_what_onnx_infers_nothing_of_is_known() -> None:
    """Of a group norm; the product behind it counts all the same."""
    nodes = [
        node("GroupNormalization", "x scale bias", "n", num_groups=2),
        node("Conv", "n w", "y"),
    ]
    constants = {"scale": weights(4), "bias": weights(4), "w": weights(8, 4, 1, 1)}
    found = work(nodes, {"x": (1, 4, 5, 5)}, ["y"], constants, 21)
    assert found.macs == {"fp16": 8 * 4 * 25}


def test_their_shapes_may_be_those_of_what_else_is_there() -> None:
    nodes = [
        node("Shape", "mask", "shape", start=1),
        node("Cast", "shape", "total", to=TensorProto.INT32),
        node("GroupQueryAttention", "q k v past_k past_v last total", "y all_k all_v", "node",
             domain="com.microsoft", num_heads=4, kv_num_heads=2),
    ]  # fmt: skip
    inputs = {"q": (1, 1, 32), "k": (1, 1, 16), "v": (1, 1, 16), "mask": (1, 7)}
    caches = {"past_k": (1, 2, 6, 8), "past_v": (1, 2, 6, 8)}
    last = {"last": np.array([6], np.int32)}
    found = onnx_facts.kinds(model(nodes, inputs | caches, ["y", "all_k", "all_v"], last))
    assert found["y"] == (TensorProto.FLOAT, (1, 1, 32))
    assert found["all_k"] == found["all_v"] == (TensorProto.FLOAT, (1, 2, 7, 8))


# ---- what is counted --------------------------------------------------------------------------------------------


def test_a_product_counts_its_inputs_weights_and_result_once() -> None:
    found = work([node("MatMul", "x w", "y")], {"x": (4, 8)}, ["y"], {"w": weights(8, 16)})
    assert found == of_model({"fp16": 4 * 8 * 16}, 2 * (4 * 8 + 8 * 16 + 4 * 16))


def test_precision_decides_what_float32_becomes() -> None:
    one = model([node("MatMul", "x w", "y")], {"x": (4, 8)}, ["y"], {"w": weights(8, 16)})
    assert ModelWork(one).total == of_model({"fp32": 4 * 8 * 16}, 4 * (4 * 8 + 8 * 16 + 4 * 16))


def test_functions_take_a_pass_and_sums_none() -> None:
    nodes = [node("Exp", "x", "e"), node("Relu", "e", "r"), node("Add", "r x", "y")]
    assert work(nodes, {"x": (4, 8)}, ["y"]).vector_bytes == 4 * 8 * 2


def test_a_product_of_two_values_takes_a_pass_and_a_scale_none() -> None:
    nodes = [node("Mul", "x x", "a"), node("Mul", "a s", "b"), node("Mul", "b c", "y")]
    found = work(nodes, {"x": (4, 8), "s": (4, 1)}, ["y"], {"c": weights(4, 8)})
    assert found.vector_bytes == 4 * 8 * 2


def test_the_greatest_of_n_takes_n_less_one_steps() -> None:
    found = work([node("ReduceMax", "x", "y", axes=[1], keepdims=0)], {"x": (4, 8)}, ["y"])
    assert found.vector_bytes == 4 * 7 * 2


def test_constants_are_folded_into_what_uses_them() -> None:
    """Only a weight is read; it is read as what it is made from, where that is smaller."""
    nodes = [
        node("Transpose", "w", "t", perm=[1, 0]),
        node("Expand", "one", "m"),
        node("Mul", "t m", "v"),
        node("MatMul", "x v", "p"),
        node("Add", "p b", "y"),
    ]
    nodes[1].input.append("shape")
    constants = {"w": weights(16, 8), "one": weights(1), "shape": np.array([8, 16]), "b": weights(16)}
    found = work(nodes, {"x": (4, 8)}, ["y"], constants)
    assert found == of_model({"fp16": 4 * 8 * 16}, 2 * (4 * 8 + 8 * 16 + 4 * 16))


def test_equal_nodes_are_one() -> None:
    nodes = [node("Exp", "x", "a"), node("Exp", "x", "b"), node("Add", "a b", "y")]
    assert work(nodes, {"x": (4, 8)}, ["y"]).vector_bytes == 4 * 8 * 2


def test_quantised_operands_multiply_as_integers() -> None:
    constants = {"s": np.float32(0.5), "w": RNG.integers(-9, 9, (8, 16), np.int8)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "a"),
        node("DequantizeLinear", "w s z", "b"),
        node("MatMul", "a b", "y"),
    ]
    found = work(nodes, {"x": (4, 8)}, ["y"], {**constants, "z": np.int8(0)})
    assert found.macs == {"fp16": 4 * 8 * 16}  # its weights are constants: they are floats once folded
    nodes[2].input[0] = "r"
    nodes.insert(0, node("QuantizeLinear", "u s z", "r"))
    found = work(nodes, {"x": (4, 8), "u": (8, 16)}, ["y"], {"s": np.float32(0.5), "z": np.int8(0)})
    assert found.macs == {"int8": 4 * 8 * 16}


def test_padding_that_is_left_to_the_operator_is_none_of_the_work() -> None:
    constants = {"w": weights(4, 3, 3, 3)}
    given = work([node("Conv", "x w", "y", pads=[1, 1, 1, 1])], {"x": (1, 3, 6, 6)}, ["y"], constants)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        assert work([node("Conv", "x w", "y", auto_pad=auto_pad)], {"x": (1, 3, 6, 6)}, ["y"], constants) == given
    assert given.macs == {"fp16": 3 * 4 * (2 + 3 * 4 + 2) ** 2}


def test_windows_past_the_end_are_counted_as_far_as_they_reach() -> None:
    pool = node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    assert work([pool], {"x": (1, 1, 5, 5)}, ["y"]).vector_bytes == 2 * (25 - 9)


# ---- what nobody needs ------------------------------------------------------------------------------------------


def test_what_a_later_window_leaves_out_is_no_work() -> None:
    """Pooling pairs of five leaves the fifth, which its maker need not compute, nor read what only that one reads."""
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("MaxPool", "c", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p v", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    constants = {"w": weights(8, 16, 1, 1), "v": weights(8, 8, 3, 3)}
    taps = 4 * 4  # of two rows under three taps, one lies on padding
    macs = 8 * 16 * 4 * 4 + 8 * 8 * taps
    read = 16 * 4 * 4 + 8 * 16 + 8 * 8 * 3 * 3
    found = work(nodes, {"x": [1, 16, 5, 5]}, ["y"], constants)
    assert found == Work({"fp16": macs}, 2 * 8 * (16 - 4), 2 * (read + 8 * 2 * 2), there_and_back=True)


def test_groups_whose_channels_are_thrown_away_are_no_work() -> None:
    nodes = [node("Conv", "x w", "c", kernel_shape=[1, 1], group=4), node("Slice", "c starts ends axes", "y")]
    constants = {"w": weights(8, 4, 1, 1), "starts": np.int64([2]), "ends": np.int64([3]), "axes": np.int64([1])}
    found = work(nodes, {"x": [1, 16, 5, 5]}, ["y"], constants)
    assert found == of_model({"fp16": 4 * 25}, 2 * (4 * 25 + 4 + 25))


@pytest.mark.parametrize("pads", [[0, 0, 1, 1, 0, 0, 1, 1], [0, 0, -1, 0, 0, 0, 1, 0]])
def test_padding_is_followed_where_not_all_is_needed(pads: Sequence[int]) -> None:
    """Windows of two read no seventh row or column; and none that is cut off."""
    nodes = [node("Pad", "x pads", "p"), node("MaxPool", "p", "y", kernel_shape=[2, 2], strides=[2, 2])]
    found = work(nodes, {"x": [1, 1, 5, 5]}, ["y"], {"pads": np.int64(pads)})
    rows, columns = (5, 5) if pads[2] > 0 else (4, 4)
    made = 9 if pads[2] > 0 else 4
    passes = (36 if pads[2] > 0 else 16) - made
    assert found == Work({}, 2 * passes, 2 * (rows * columns + made), there_and_back=True)


def test_rows_that_are_thrown_away_are_no_work() -> None:
    nodes = [node("MatMul", "x w", "p"), node("Gather", "p i", "y", axis=0)]
    found = work(nodes, {"x": (64, 8)}, ["y"], {"w": weights(8, 16), "i": np.array(0)})
    assert found == of_model({"fp16": 8 * 16}, 2 * (8 + 8 * 16 + 16))


def test_columns_that_are_thrown_away_are_no_work() -> None:
    nodes = [node("MatMul", "x w", "p"), node("Slice", "p a b c", "y")]
    constants = {"w": weights(8, 16), "a": np.array([4]), "b": np.array([8]), "c": np.array([1])}
    found = work(nodes, {"x": (64, 8)}, ["y"], constants)
    assert found == of_model({"fp16": 64 * 8 * 4}, 2 * (64 * 8 + 8 * 4 + 64 * 4))


def test_slices_of_everything_need_everything() -> None:
    nodes = [
        node("Exp", "x", "e"),
        node("Split", "e", "a b c", axis=1),
        node("Add", "a b", "s"),
        node("Add", "s c", "y"),
    ]
    assert work(nodes, {"x": (4, 12)}, ["y"]).vector_bytes == 4 * 12 * 2


def test_one_query_needs_all_keys() -> None:
    """Attention of which only the first row is used: rows of Q and of the result are one, K and V are whole."""
    nodes = [
        node("MatMul", "x wq", "q"),
        node("MatMul", "x wk", "k"),
        node("Transpose", "k", "kt", perm=[1, 0]),
        node("MatMul", "q kt", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p x", "o"),
        node("Gather", "o i", "y", axis=0),
    ]
    constants = {"wq": weights(8, 8), "wk": weights(8, 8), "i": np.array(0)}
    found = work(nodes, {"x": (64, 8)}, ["y"], constants)
    assert found.macs == {"fp16": 8 * 8 + 64 * 8 * 8 + 2 * 64 * 8}
    assert found.vector_bytes == 64 * 2
    assert found.ddr_bytes == 2 * (64 * 8 + 2 * 64 + 8)


def test_heads_are_followed_through_reshapes() -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        node("Reshape", "p s", "r"),
        node("Transpose", "r", "t", perm=[1, 0, 2]),
        node("Gather", "t i", "y", axis=0),
    ]
    constants = {"w": weights(8, 16), "s": np.array([64, 4, 4]), "i": np.array(1)}
    assert work(nodes, {"x": (64, 8)}, ["y"], constants).macs == {"fp16": 64 * 8 * 4}


def test_extents_with_names_are_those_that_are_given() -> None:
    """Exporters name what comes of the extent of an input, in two places."""
    made = model([node("MatMul", "x w", "y")], {"x": (1, 8)}, ["y"], {"w": weights(8, 16)})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    named = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch * 1", 16])
    made.graph.output[0].CopyFrom(named)
    made.graph.value_info.append(named)
    assert ModelWork(made, "fp16", {"x": (64, 8)}).total == of_model({"fp16": 64 * 8 * 16}, 2 * 8 * (64 + 16 + 128))


def test_shapes_that_are_computed_are_followed() -> None:
    """The positions of as many tokens as there are, as exporters write it."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "n", axis=0),
        node("Unsqueeze", "n axes", "end"),
        node("Slice", "x start end axes", "part"),
        node("MatMul", "part w", "y"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "start": np.array([1]), "w": weights(8, 16)}
    assert work(nodes, {"x": (64, 8)}, ["y"], constants).macs == {"fp16": 63 * 8 * 16}


def test_padding_as_torch_exports_it_is_followed() -> None:
    """It counts from the last axis, and is turned around for ONNX."""
    nodes = [
        node("Reshape", "given pairs", "p"),
        node("Slice", "p first end zero back", "turned"),
        node("Transpose", "turned", "halves", perm=[1, 0]),
        node("Reshape", "halves flat", "pads"),
        node("Pad", "x pads", "padded"),
        node("MatMul", "padded w", "y"),
    ]
    constants = {
        "given": np.array([0, 0, 0, 2]), "pairs": np.array([-1, 2]), "first": np.array([-1]), "end": np.array([-9]),
        "zero": np.array([0]), "back": np.array([-1]), "flat": np.array([-1]), "w": weights(8, 16),
    }  # fmt: skip
    found = work(nodes, {"x": (62, 8)}, ["y"], constants)
    assert found.macs and found.ddr_bytes > 2 * 64 * 16


def test_rounding_by_the_extremes_needs_all_elements() -> None:
    """As quantize_dynamic has it before each product."""
    nodes = [
        node("MatMul", "x w", "p"),
        helper.make_node("DynamicQuantizeLinear", ["p"], ["q", "scale", "zero"]),
        node("MatMulInteger", "q i zero", "sums"),
        node("Cast", "sums", "y", to=TensorProto.FLOAT),
    ]
    constants = {"w": weights(8, 16), "i": np.ones((16, 4), np.int8)}
    assert work(nodes, {"x": (64, 8)}, ["y"], constants).macs == {"fp16": 64 * 8 * 16, "int8": 64 * 16 * 4}


@pytest.mark.parametrize(("reduction", "rows"), [("none", 62), ("add", 64)])
def test_rows_that_others_are_put_in_place_of_are_not_needed(reduction: str, rows: int) -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        node("MatMul", "u w", "q"),
        node("ScatterND", "p places q", "y", reduction=reduction),
    ]
    constants = {"w": weights(8, 16), "places": np.array([[5], [9]])}
    found = work(nodes, {"x": (64, 8), "u": (2, 8)}, ["y"], constants)
    assert found.macs == {"fp16": (rows + 2) * 8 * 16}


def test_updates_that_others_may_take_the_place_of_are_not_needed() -> None:
    nodes = [node("MatMul", "u w", "q"), node("ScatterND", "x places q", "y")]
    constants = {"w": weights(8, 16), "places": np.array([[5], [5]])}
    assert work(nodes, {"x": (64, 16), "u": (2, 8)}, ["y"], constants).macs == {}


@pytest.mark.parametrize(("reduction", "rows"), [("none", 0), ("add", 64 + 2)])
def test_elements_that_are_combined_with_others_are_needed(reduction: str, rows: int) -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        node("MatMul", "u w", "q"),
        node("ScatterElements", "p places q", "y", reduction=reduction),
    ]
    constants = {"w": weights(8, 16), "places": np.full((2, 16), 5)}
    found = work(nodes, {"x": (64, 8), "u": (2, 8)}, ["y"], constants, opset=18)
    assert found.macs == ({"fp16": rows * 8 * 16} if rows else {})


@pytest.mark.parametrize(("pads", "is_needed"), [([0] * 4, True), ([1] * 4, False)])
def test_windows_are_needed_whose_sums_are_the_result(pads: list[int], is_needed: bool) -> None:
    nodes = [node("MatMul", "x w", "p"), node("Col2Im", "p image block", "y", pads=pads, strides=[2, 2])]
    constants = {"w": weights(8, 16), "image": np.array([8, 8]), "block": np.array([2, 2])}
    found = work(nodes, {"x": (1, 4, 8)}, ["y"], constants, opset=18)
    assert bool(found.macs) == is_needed


def test_what_says_which_elements_are_picked_is_needed() -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        node("ArgMax", "p", "i", axis=1),
        node("GatherElements", "table i", "picked", axis=1),
        node("Exp", "picked", "y"),
    ]
    given = {"x": (64, 8), "table": (64, 16)}
    assert work(nodes, given, ["y"], {"w": weights(8, 16)}).macs == {"fp16": 64 * 8 * 16}


def test_quantised_tensors_are_needed_as_those_that_they_stand_for_are() -> None:
    """Of onnxruntime's own domain."""
    made = model(
        [
            node("QLinearMatMul", "x s z w s z s z", "p"),
            node("QLinearAdd", "p s z c s z s z", "a", domain="com.microsoft"),
            node("QLinearConcat", "s z a s z c s z", "both", domain="com.microsoft", axis=1),
            node("DequantizeLinear", "both s z", "y"),
        ],
        {"x": (64, 8), "c": (64, 16)},
        ["y"],
        {"w": np.ones((8, 16), np.uint8), "s": np.float32(0.1), "z": np.uint8(3)},
    )
    for given in made.graph.input:
        given.type.tensor_type.elem_type = TensorProto.UINT8
    assert ModelWork(made, "fp16").total.macs == {"int8": 64 * 8 * 16}


def test_an_output_that_is_an_input_is_not_moved() -> None:
    nodes = [node("Reshape", "x s", "y"), node("Exp", "x", "z")]
    assert work(nodes, {"x": (4, 8)}, ["y", "z"], {"s": np.array([8, 4])}).ddr_bytes == 2 * 2 * 32


def test_an_output_that_is_put_in_another_order_is_written() -> None:
    assert work([node("Transpose", "x", "y", perm=[1, 0])], {"x": (4, 8)}, ["y"]).ddr_bytes == 2 * 2 * 32
    assert work([node("Transpose", "x", "y", perm=[1, 0])], {"x": (1, 8)}, ["y"]).ddr_bytes == 0
    nodes = [node("Expand", "x s", "y")]
    assert work(nodes, {"x": (1, 8)}, ["y"], {"s": np.array([4, 8])}).ddr_bytes == 2 * (8 + 32)
    assert work([node("Concat", "x z", "y", axis=0)], {"x": (1, 8), "z": (2, 8)}, ["y"]).ddr_bytes == 2 * 2 * 24


def test_a_recurrence_that_is_used_up_to_a_step_runs_that_far() -> None:
    constants = {"w": weights(1, 64, 8), "r": weights(1, 64, 16), "i": np.array(3)}
    nodes = [node("LSTM", "x w r", "h", hidden_size=16), node("Gather", "h i", "y", axis=0)]
    found = work(nodes, {"x": (10, 2, 8)}, ["y"], constants)
    assert found.macs == {"fp16": 3 * 2 * 64 * (8 + 16)}  # and the fourth as far as nobody knows


# ---- what comes one after the other ------------------------------------------------------------------------------


def test_what_a_result_is_made_of_comes_from_ddr_and_it_goes_there() -> None:
    found = work([node("Relu", "x", "y")], {"x": (4, 8)}, ["y"])
    assert found.bound(TW1).latency_cycles == (20 + 200) + (20 + 100)
    assert found.bound(TW1).by == "latency"


def test_what_depends_on_no_input_does_not_wait_for_one() -> None:
    shape = np.array([4, 8])
    assert not work([node("RandomUniform", "", "y", shape=shape.tolist())], {"x": (4, 8)}, ["y"]).there_and_back


@pytest.mark.parametrize("operator, gates, rounds", [("LSTM", 4, 3), ("GRU", 3, 3), ("RNN", 1, 2)])
def test_a_step_of_a_recurrence_follows_the_other(operator: str, gates: int, rounds: int) -> None:
    """The first one, whose state may be known, is not counted."""
    constants = {"w": weights(1, gates * 64, 8), "r": weights(1, gates * 64, 64)}
    nodes = [node(operator, "x w r", "h", hidden_size=64)]
    found = work(nodes, {"x": (10, 2, 8)}, ["h"], constants)
    assert found.recurrence == Recurrence(9, (gates * 64 * 64, *[64] * (rounds - 1)))
    assert found.recurrence.cycles(TW1) == 9 * rounds * (12 + 14)
    assert found.bound(TW1).latency_cycles == 9 * rounds * 26 + 340


def test_functions_that_the_fixpipe_knows_are_no_rounds() -> None:
    constants = {"w": weights(1, 16, 8), "r": weights(1, 16, 16)}
    nodes = [node("RNN", "x w r", "h", hidden_size=16, activations=["Relu"])]
    assert work(nodes, {"x": (10, 2, 8)}, ["h"], constants).recurrence == Recurrence(9, (16 * 16,))


def test_a_recurrence_of_few_elements_may_be_done_one_by_one() -> None:
    """And one of a single element is no product."""
    assert Recurrence(9, (4 * 2 * 2, 2, 2)).cycles(TW1) == 9 * (16 + 2 + 2)
    constants = {"w": weights(1, 4, 8), "r": weights(1, 4, 1)}
    nodes = [node("LSTM", "x w r", "h", hidden_size=1)]
    assert work(nodes, {"x": (10, 2, 8)}, ["h"], constants).recurrence.length == 0


def test_of_two_recurrences_the_longer_one_counts() -> None:
    both = Work(recurrence=Recurrence(9, (64, 8))) + Work(recurrence=Recurrence(10, (64,)))
    assert both.recurrence == Recurrence(9, (64, 8))


# ---- kernels ----------------------------------------------------------------------------------------------------


def test_a_kernel_reads_what_others_make_and_writes_what_others_read() -> None:
    nodes = [node("MatMul", "x w", "p"), node("Relu", "p", "r"), node("Exp", "r", "y")]
    found = ModelWork(model(nodes, {"x": (4, 8)}, ["y"], {"w": weights(8, 16)}), "fp16")
    first, second = found.of(["p", "r"]), found.of(["y"])
    assert first == Work({"fp16": 4 * 8 * 16}, 0, 2 * (4 * 8 + 8 * 16 + 4 * 16))
    assert second == Work({}, 2 * 64, 2 * 2 * 64)
    assert found.of(["unheard of"]) is None


# ---- no program beats them --------------------------------------------------------------------------------------


def assert_no_less(found: Profile) -> None:
    """Not in cycles, and of nothing that is counted."""
    work, bound = found.work, found.bound
    assert work is not None and bound is not None
    assert bound.cycles <= found.cycles
    assert work.ddr_bytes <= found.ddr_bytes
    assert work.vector_bytes <= found.busy["V"] * found.chip.vector.bytes_per_cycle
    for layer in found.layers:
        if layer.work is not None and layer.macs:  # what is no matter for the cube, V multiplies
            assert sum(layer.work.macs.values()) <= sum(layer.macs.values()), layer.name


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("mlp-256", "tiny"),
        ("mlp-256", "tw1"),
        ("digits-cnn", "tw2"),
        ("resnet-block-16", "tiny"),
        ("resnet-block-16", "tw2"),
        ("lstm-16", "tw1"),
        ("bilstm-tokens-16", "tiny"),
        ("bilstm-tokens-16", "tw2"),
    ],
)
def test_no_model_of_the_zoo_is_faster(name: str, chip: str) -> None:
    proto = zoo.build(name)
    shapes = {each.name: each.shape for each in zoo.manifest(name).inputs if each.symbols}
    loaded = compiler.load(compiler.compile(proto, chip=chip, precision="fp16", shapes=shapes))
    runs = loaded.timed(zoo.inputs(name))
    assert runs is not None
    found = profile(loaded, runs, ModelWork(proto, "fp16", shapes))
    assert_no_less(found)
    assert found.bound == model_bound(proto, load_chip(chip), "fp16", shapes)
    for layer in found.layers:
        if layer.bound is not None and layer.work is not None:
            bound = layer.bound
            assert max(bound.cube_cycles, bound.vector_cycles, bound.latency_cycles) <= layer.span, layer.name
            if layer.ddr_bytes >= layer.work.ddr_bytes:  # else some of it stays on the chip
                assert layer.bound.ddr_cycles <= layer.span, layer.name


def _convolution(rng: np.random.Generator) -> onnx.ModelProto:
    group = int(rng.integers(1, 5))
    channels, out = (group * int(n) for n in rng.integers(1, 12, 2))
    kernel, stride, dilation, pad = (int(n) for n in rng.integers(1, [5, 4, 3, 3]))
    size = (kernel - 1) * dilation + int(rng.integers(1, 24))
    window = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "group": group}
    if rng.integers(0, 4) == 0:
        constants = {"w": weights(channels, out // group, kernel, kernel)}
        one = node("ConvTranspose", "x w", "y", **(window | {"pads": [0, pad, pad, 0]}))
    else:
        constants = {"w": weights(out, channels // group, kernel, kernel)}
        one = node("Conv", "x w", "y", **window)
    return model([one], {"x": (1, channels, size, size)}, ["y"], constants)


def _matmul(rng: np.random.Generator) -> onnx.ModelProto:
    """A product of which a part may be needed only."""
    batch, m, k, n = (int(size) for size in rng.integers(1, [4, 200, 200, 200]))
    nodes = [node("MatMul", "x z", "p")]
    axis, step = int(rng.integers(0, 3)), int(rng.integers(1, 3))
    nodes.append(node("Slice", "p from to axis step", "y"))
    constants = {"from": np.array([0]), "to": np.array([int(rng.integers(1, 200))])}
    constants |= {"axis": np.array([axis]), "step": np.array([step])}
    return model(nodes, {"x": (batch, m, k), "z": (k, n)}, ["y"], constants)


def _recurrence(rng: np.random.Generator) -> onnx.ModelProto:
    operator, gates = list({"LSTM": 4, "GRU": 3, "RNN": 1}.items())[rng.integers(0, 3)]
    steps, batch, width, hidden = (int(size) for size in rng.integers(1, [40, 4, 40, 40]))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions = 1 + (direction == "bidirectional")
    constants = {"w": weights(directions, gates * hidden, width), "r": weights(directions, gates * hidden, hidden)}
    one = node(operator, "x w r", "y h", hidden_size=hidden, direction=direction)
    return model([one], {"x": (steps, batch, width)}, ["y", "h"][: int(rng.integers(1, 3))], constants)


def _rows(rng: np.random.Generator) -> onnx.ModelProto:
    operator = str(rng.choice(["Softmax", "Sigmoid", "ReduceMax", "Mul", "Transpose", "MaxPool", "LayerNormalization"]))
    m, n = (int(size) for size in rng.integers(2, 300, 2))
    if operator == "Mul":
        return model([node("Mul", "x x", "y")], {"x": (m, n)}, ["y"])
    if operator == "ReduceMax":
        return model([node(operator, "x", "y", axes=[1])], {"x": (m, n)}, ["y"])
    if operator == "LayerNormalization":
        return model([node(operator, "x s", "y")], {"x": (m, n)}, ["y"], {"s": weights(n)})
    if operator == "MaxPool":
        one = node(operator, "x", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        return model([one], {"x": (1, 5, m // 4 + 3, n // 4 + 3)}, ["y"])
    return model([node(operator, "x", "y")], {"x": (m, n)}, ["y"])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("draw", [_convolution, _matmul, _recurrence, _rows])
def test_no_random_kernel_is_faster(draw: Callable[[np.random.Generator], onnx.ModelProto], seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    proto = draw(rng)
    precision = str(rng.choice(["fp16", "fp32"]))
    chip = load_chip(str(rng.choice(["tiny", "tw1", "tw2"])))
    loaded = compiler.load(compiler.compile(proto, chip=chip, precision=precision, cache=False, jobs=1))
    assert_no_less(profile(loaded, work=ModelWork(proto, precision)))


# ---- tables ------------------------------------------------------------------------------------------------------


def looked_up(rows: int = 50, width: int = 8) -> onnx.ModelProto:
    nodes = [node("Gather", "table ids", "x"), node("Exp", "x", "y")]
    made = model(nodes, {"ids": (2, 3)}, ["y"], {"table": weights(rows, width)})
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    return made


def test_rows_of_a_table_come_once_each_where_it_is_known_which() -> None:
    """Row 49 is the last one, and so is row -1."""
    proto, ids = looked_up(), np.array([[0, 49, -1], [7, 7, 0]])
    unknown, known = ModelWork(proto, "fp16").total, ModelWork(proto, "fp16", feeds={"ids": ids}).total
    assert known.ddr_bytes - unknown.ddr_bytes == 3 * 8 * 2
    assert model_bound(proto, TW1, "fp16", feeds={"ids": ids}).ddr_cycles >= model_bound(proto, TW1, "fp16").ddr_cycles


def test_of_products_of_all_pairs_half_of_which_are_read_all_operands_are_needed() -> None:
    """As in DLRM. The products that are needed are no box; a box of 20 of the 36 needs all nine operands."""
    picked = np.flatnonzero(np.tril(np.ones((9, 9)), -1))
    nodes = [
        node("Gather", "table ids", "x"),
        node("Transpose", "x", "t", perm=[0, 2, 1]),
        node("MatMul", "x t", "p"),
        node("Reshape", "p shape", "f"),
        node("Gather", "f picked", "y", axis=1),
    ]
    known = {"table": weights(50, 8), "shape": np.array([4, 81]), "picked": picked}
    proto = model(nodes, {"ids": (4, 9)}, ["y"], known)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    ids = np.arange(36).reshape(4, 9)
    unknown, found = ModelWork(proto, "fp16").total, ModelWork(proto, "fp16", feeds={"ids": ids}).total
    assert found.macs == {"fp16": 4 * 20 * 8}
    assert found.ddr_bytes - unknown.ddr_bytes == 36 * 8 * 2
