"""What callers say about a model, and what they are told about it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from tvm import te

from compiler import graph
from compiler.errors import InvalidError, LimitError, TilewrightError, UnsupportedError, UsageError
from compiler.frontend import Limits, Port, import_model, load_model, setup_inputs
from compiler.operators import Graph, Value
from tests.frontend.cpu import check, run
from tests.frontend.models import model, node


def relu(shape: Any) -> bytes:
    return model([node("Relu", "x", "y")], {"x": shape}, ["y"]).SerializeToString()


def codes(error: pytest.ExceptionInfo[TilewrightError]) -> list[str]:
    return [problem.code for problem in error.value.problems]


# Shapes


def test_shapes_and_dims_make_inputs_static() -> None:
    symbolic = relu(["batch", 3, None])
    assert import_model(symbolic, shapes={"x": (2, 3, 5)}).inputs[0].shape == (2, 3, 5)
    half_known = relu(["batch", 3, "batch"])
    assert import_model(half_known, dims={"batch": 4}).outputs[0].shape == (4, 3, 4)


@pytest.mark.parametrize(
    ("shape", "said", "code", "text"),
    [
        (["batch", 3], {}, "TW2040", "dimension 0 ('batch')"),
        ([3, None], {}, "TW2040", "dimension 1 (?)"),
        ([3, -1], {}, "TW2040", "dimension 1 (?)"),
        (None, {}, "TW2040", "has no shape"),
        ([2, 3], {"shapes": {"z": (2, 3)}}, "TW2041", "'z', which is no input"),
        ([2, 3], {"dims": {"batch": 3}}, "TW2041", "'batch', which no input has"),
        ([2, 3], {"shapes": {"x": (2,)}}, "TW2042", "rank 2"),
        ([2, 3], {"shapes": {"x": (2, 4)}}, "TW2042", "dimension 1 is 3"),
        (["batch"], {"dims": {"batch": -1}}, "TW2042", "cannot be -1"),
        (["batch"], {"shapes": {"x": (-1,)}}, "TW2042", "cannot be -1"),
        (["a", "b"], {"shapes": {"x": (1, 2)}, "dims": {"a": 2}}, "TW2042", "dimension 0 is 2"),
    ],
)
def test_shapes_that_do_not_fit(shape: Any, said: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        import_model(relu(shape), **said)
    assert code in codes(raised)
    assert text in str(raised.value)


def test_all_missing_dims_are_told_at_once() -> None:
    network = model([node("Add", "a b", "y")], {"a": ["n", "m"], "b": [None, 2]}, ["y"])
    with pytest.raises(UsageError) as raised:
        import_model(network.SerializeToString())
    assert codes(raised) == ["TW2040"] * 3


# Values


def test_an_input_that_decides_a_shape() -> None:
    network = model(
        [node("Reshape", "x shape", "a"), node("Tile", "a repeats", "y")],
        {"x": [2, 6], "shape": (TensorProto.INT64, [2]), "repeats": (TensorProto.INT64, [2])},
        ["y"],
    )
    data = network.SerializeToString()
    with pytest.raises(UnsupportedError, match="depends on the model's input 'shape'"):
        import_model(data)
    assert setup_inputs(data) == ("shape",)
    values = {"shape": np.array([3, 4])}
    assert setup_inputs(data, values=values) == ("repeats",)
    values["repeats"] = np.array([1, 2])
    imported = import_model(data, values=values)
    assert [port.name for port in imported.inputs] == ["x"]
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(run(imported, {"x": x})[0], np.tile(x.reshape(3, 4), (1, 2)))


def test_values_must_fit_their_input() -> None:
    network = model([node("Reshape", "x shape", "y")], {"x": [4], "shape": (TensorProto.INT64, [2])}, ["y"])
    data = network.SerializeToString()
    for value in (np.array([2, 2], np.int32), np.array([2, 2, 1]), np.array(4)):
        with pytest.raises(UsageError, match="TW2043"):
            import_model(data, values={"shape": value})
    with pytest.raises(UsageError, match="TW2041"):
        import_model(data, values={"nothing": np.array([2, 2])})


# Types


def test_signature_of_demoted_types() -> None:
    nodes = [node("Cast", "i", "d", to=TensorProto.DOUBLE), node("Mul", "x d", "y"), node("Neg", "i", "j")]
    network = model(nodes, {"x": (TensorProto.DOUBLE, [3]), "i": (TensorProto.INT64, [3])}, ["y", "j"])
    network.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    network.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    imported = import_model(network.SerializeToString())
    assert imported.inputs == (Port("x", "float64", "float32", (3,)), Port("i", "int64", "int32", (3,)))
    assert imported.outputs == (Port("y", "float64", "float32", (3,)), Port("j", "int64", "int32", (3,)))
    assert [note.split(" in ")[0] for note in imported.notes] == ["float64 became float32", "int64 became int32"]
    check(network, imported, {"x": np.array([1.5, 2, -3]), "i": np.array([2, -7, 1 << 20])})


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")])
def test_precision(precision: str, dtype: str) -> None:
    """Inputs, constants, casts and what shapes are filled with become the type that is asked for; integers do not, nor
    what they are added to before they are rounded.
    """
    nodes = [
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("ConstantOfShape", "shape", "ones", value=onnx.numpy_helper.from_array(np.ones(1, np.float32))),
        node("Add", "f ones", "a"),
        node("Mul", "a x", "b"),
        node("Mul", "b w", "y"),
    ]
    constants = {"shape": np.array([2, 2]), "w": np.array([0.5, 3], np.float32)}
    network = model(nodes, {"x": [2, 2], "i": (TensorProto.INT32, [2, 2])}, ["y"], constants)
    imported = import_model(network.SerializeToString(), precision=precision)
    types = {str(parameter.ty.dtype) for parameter in imported.module["main"].params}
    assert types == {dtype, "int32", "float32"}
    assert imported.outputs == (Port("y", "float32", dtype, (2, 2)),)
    feeds = {"x": np.array([[1, 2], [3, 4]], np.float32), "i": np.array([[0, 1], [2, 3]], np.int32)}
    if precision != "bf16":  # TVM's CPU code for bfloat16 is not what is tested
        check(network, imported, feeds, rtol=1e-2)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("channels", [1, 2])
def test_constant_weights_are_packed_at_compile_time(precision: str, channels: int) -> None:
    """Those of groups that share a block of channels, too: nothing but the convolution is left to run."""
    weights = np.ones((12, channels, 3, 3), np.float32)
    network = model(
        [node("Conv", "x w", "y", group=12 // channels, pads=[1, 1, 1, 1])],
        {"x": (1, 12, 5, 5)},
        ["y"],
        {"w": weights},
    )
    main = graph.read(import_model(network.SerializeToString(), precision=precision).module["main"])
    assert len(main.calls) == 1


@pytest.mark.parametrize(("side", "channels", "width", "product"), [
    (16, 3, 64, True), (8, 3, 64, False), (16, 16, 64, False), (16, 3, 72, False),
])  # fmt: skip
def test_patches_of_few_channels_are_a_product(side: int, channels: int, width: int, product: bool) -> None:
    weights = np.ones((12, channels, side, side), np.float32)
    nodes = [node("Conv", "x w", "y", strides=[side, side])]
    network = model(nodes, {"x": (1, channels, 32, width)}, ["y"], {"w": weights})
    module = import_model(network.SerializeToString(), precision="fp16").module
    operators = {graph.attribute(module[call.callee], "tw.operator") for call in graph.read(module["main"]).calls}
    assert ("Gemm" in operators) == product


@pytest.mark.parametrize("known", ["", "scale", "scale bias mean", "scale bias mean variance"])
@pytest.mark.parametrize("training", [0, 1])
def test_batch_statistics_may_be_inputs_in_half_precision(known: str, training: int) -> None:
    """Terms are computed in float32, whichever of them are known."""
    rng = np.random.default_rng(5)
    terms = {name: rng.uniform(0.5, 2, 3).astype(np.float32) for name in ("scale", "bias", "mean", "variance")}
    outputs = "y a b" if training else "y"
    nodes = [node("BatchNormalization", "x scale bias mean variance", outputs, epsilon=1e-5, training_mode=training)]
    inputs = {"x": (2, 3, 4, 4), **{name: (3,) for name in terms if name not in known.split()}}
    network = model(nodes, inputs, outputs.split(), {name: terms[name] for name in known.split()})
    feeds = {"x": rng.uniform(-1, 1, (2, 3, 4, 4)).astype(np.float32)} | {
        name: term for name, term in terms.items() if name not in known.split()
    }
    check(network, import_model(network.SerializeToString(), precision="fp16"), feeds, rtol=1e-2, atol=1e-2)


def test_unknown_precision() -> None:
    with pytest.raises(UsageError, match="TW2046"):
        import_model(relu([2]), precision="fp8")


def test_integers_that_do_not_fit_saturate_with_a_note() -> None:
    constants = {"big": np.array([1 << 40, -(1 << 40), 5])}
    inputs = {"i": (TensorProto.INT64, [3])}
    network = model([node("Min", "i big", "y")], inputs, ["y"], constants, output_type=TensorProto.INT64)
    imported = import_model(network.SerializeToString())
    assert imported.constants["big"].tolist() == [(1 << 31) - 1, -(1 << 31), 5]
    assert imported.notes[-1] == "integers outside int32 became its nearest in big"


@pytest.mark.parametrize(("precision", "largest"), [("fp16", 65504.0), ("bf16", 3.3895313892515355e38)])
def test_what_is_finite_stays_it(precision: str, largest: float) -> None:
    """Masks of attention are the least number that there is: times zero, it has to be zero."""
    least = np.finfo(np.float32).min
    constants = {"mask": np.array([least, -least, -np.inf, np.nan, 1.5], np.float32)}
    network = model([node("Add", "x mask", "y")], {"x": (5,)}, ["y"], constants)
    imported = import_model(network.SerializeToString(), precision=precision)
    expected = [-largest, largest, -np.inf, np.nan, 1.5]
    np.testing.assert_array_equal(imported.constants["mask"].astype(np.float64), expected)
    assert imported.notes[-1] == "numbers beyond the largest of their new type became that in mask"


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [("Clip", "x epsilon"), ("Max", "x epsilon"), ("Add", "x epsilon"), ("Where", "flag epsilon x")],
)
def test_what_keeps_a_divisor_from_being_zero_stays_it(operator: str, inputs: str) -> None:
    """The epsilon of a division by a length is often 1e-12, which float16 does not have: a row of zeros stays that."""
    nodes = [
        node("ReduceL2", "y axes", "x", keepdims=1),
        node(operator, inputs, "length"),
        node("Div", "y length", "z"),
    ]
    constants = {"axes": np.array([1]), "epsilon": np.array(1e-12, np.float32), "flag": np.array([[False], [True]])}
    network = model(nodes, {"y": (2, 4)}, ["z"], constants)
    imported = import_model(network.SerializeToString(), precision="fp16")
    y = np.array([[3, 0, -4, 0], [0, 0, 0, 0]], np.float32)
    check(network, imported, {"y": y}, rtol=1e-3)


def test_an_output_that_is_named_twice_is_one() -> None:
    network = model([node("Relu", "x", "y")], {"x": (3,)}, ["y", "y"])
    assert [port.name for port in import_model(network.SerializeToString()).outputs] == ["y"]


@pytest.mark.parametrize("precision", [None, "fp16", "bf16"])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64])
def test_types_are_known_behind_branches(kind: int, precision: str | None) -> None:
    """What no schema tells has the type of what it is made of, though that is compiled to another."""

    def branch(operator: str, result: str) -> Any:
        info = onnx.helper.make_tensor_value_info(result, kind, [4])
        return onnx.helper.make_graph([onnx.helper.make_node(operator, ["x"], [result])], operator, [], [info])

    chosen = node("If", "c", "b", then_branch=branch("Neg", "n"), else_branch=branch("Abs", "p"))
    inputs = {"x": (kind, [4]), "c": (TensorProto.BOOL, [])}
    network = model([chosen, node("Add", "b x", "y")], inputs, ["y"], output_type=kind)
    assert import_model(network.SerializeToString(), precision=precision).outputs[0].shape == (4,)


def test_ends_of_slices_are_not_data() -> None:
    """The largest int64 says "to the end"; it is read as it is, and nothing is noted of it."""
    constants = {"from": np.array([1]), "to": np.array([np.iinfo(np.int64).max])}
    imported = import_model(model([node("Slice", "x from to", "y")], {"x": [5]}, ["y"], constants).SerializeToString())
    assert imported.outputs[0].shape == (4,)
    assert imported.notes == ()


# Constants


def test_constants_follow_the_inputs_in_order_of_use() -> None:
    nodes = [node("Mul", "x b", "t"), node("Add", "t a", "u"), node("Mul", "u b", "y")]
    constants = {"a": np.ones(3, np.float32), "b": np.full(3, 2, np.float32), "unused": np.ones(9, np.float32)}
    imported = import_model(model(nodes, {"x": [3]}, ["y"], constants).SerializeToString())
    main = imported.module["main"]
    assert [parameter.name for parameter in main.params] == ["x", "b", "a"]
    assert list(imported.constants) == ["b", "a"]
    assert int(main.attrs["num_input"]) == 1


def test_initializers_that_are_inputs_too_are_constants() -> None:
    """Files before IR version 4 list every initializer among the inputs."""
    network = model([node("Add", "x w", "y")], {"x": [2], "w": [2]}, ["y"], {"w": np.ones(2, np.float32)})
    assert [port.name for port in import_model(network.SerializeToString()).inputs] == ["x"]


def sparse(indices: Any, dims: list[int]) -> onnx.SparseTensorProto:
    places = np.array(indices, np.int64)
    values = onnx.numpy_helper.from_array(np.arange(1, len(places) + 1, dtype=np.float32), "values")
    return onnx.SparseTensorProto(values=values, indices=onnx.numpy_helper.from_array(places), dims=dims)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_constants_are_dense(indices: Any) -> None:
    nodes = [node("Constant", "", "c", sparse_value=sparse(indices, [2, 3])), node("Add", "x c", "y")]
    imported = import_model(model(nodes, {"x": [2, 3]}, ["y"]).SerializeToString())
    (constant,) = imported.constants.values()
    np.testing.assert_array_equal(constant, [[0, 1, 0], [0, 0, 2]])


@pytest.mark.parametrize(
    ("indices", "dims", "kind", "text"),
    [
        ([1, 6], [2, 3], InvalidError, "an index is outside"),
        ([[0, 1], [1, -1]], [2, 3], InvalidError, "an index is outside"),
        ([[0], [1]], [2, 3], InvalidError, "a place or a number for each value"),
        ([1, 5], [1 << 20, 1 << 10], LimitError, "bytes, limit"),
    ],
)
def test_sparse_constants_that_say_what_cannot_be(indices: Any, dims: list[int], kind: Any, text: str) -> None:
    nodes = [node("Constant", "", "c", sparse_value=sparse(indices, dims)), node("Add", "x c", "y")]
    with pytest.raises(kind, match=text):
        import_model(model(nodes, {"x": [1]}, ["y"]).SerializeToString())


def test_folding_takes_no_memory_that_the_model_does_not_have() -> None:
    """Two gigabytes of zeros are no more than a view until somebody writes them; what would be is left to the chip."""
    nodes = [node("ConstantOfShape", "shape", "zeros"), node("Exp", "zeros", "ones"), node("Add", "ones zeros", "s")]
    nodes += [node("ReduceMax", "s", "most", keepdims=0), node("Add", "x most", "y")]
    network = model(nodes, {"x": [2]}, ["y"], {"shape": np.array([1 << 29])})
    imported = import_model(network.SerializeToString())
    assert {name for (name,) in imported.nodes.values()} == {"ones", "s", "most", "y"}
    assert imported.constants["zeros"].strides == (0,)


def test_known_work_is_done_at_import() -> None:
    nodes = [node("Range", "zero five one", "r"), node("Cast", "r", "f", to=1), node("Exp", "f", "e")]
    nodes += [node("Reshape", "e shape", "g"), node("Add", "x g", "y")]
    constants = {"zero": np.array(0), "five": np.array(6), "one": np.array(1), "shape": np.array([2, -1])}
    imported = import_model(model(nodes, {"x": [2, 3]}, ["y"], constants).SerializeToString())
    assert list(imported.nodes.values()) == [("y",)]
    np.testing.assert_allclose(imported.constants["g"], np.exp(np.arange(6, dtype=np.float32)).reshape(2, 3))


def test_padding_of_one_axis_is_not_counted_on_others() -> None:
    """What is padded at import may not be larger than a limit: all of the padding on each axis would be."""
    nodes = [node("Pad", "w ends _ axes", "p"), node("Add", "x p", "y")]
    constants = {"w": np.ones((4, 9, 9, 9), np.float32), "ends": np.array([0, 2000]), "axes": np.array([3])}
    nodes[0].input[2] = ""
    imported = import_model(model(nodes, {"x": [4, 9, 9, 2009]}, ["y"], constants, opset=18).SerializeToString())
    assert list(imported.nodes.values()) == [("y",)]


def test_what_only_says_a_type_need_not_be_known() -> None:
    """As EmbeddingBag is exported: ends of slices are counted in the type of some index, int64 as their beginnings."""
    nodes = [node("CastLike", "one index", "step"), node("Add", "start step", "end"), node("Slice", "x start end", "y")]
    for index in ({"index": np.array([7])}, {}):
        constants = {"one": np.int32(1), "start": np.array([2]), **index}
        inputs = {"x": [5, 3]} if index else {"x": [5, 3], "index": (TensorProto.INT64, [1])}
        network = model(nodes, inputs, ["y"], constants, opset=20)
        feeds = {"x": np.arange(15, dtype=np.float32).reshape(5, 3)}
        check(network, import_model(network.SerializeToString()), feeds | ({} if index else {"index": np.array([7])}))


# Origins, order, hashes


def test_nodes_are_told_for_every_variable() -> None:
    nodes = [node("Split", "x", "a b", name="cut", num_outputs=2), node("Add", "a b", "y", name="sum")]
    imported = import_model(model(nodes, {"x": [4]}, ["y"]).SerializeToString())
    variables = [binding.var.name for block in imported.module["main"].body.blocks for binding in block.bindings]
    assert set(variables) == set(imported.nodes)
    assert set(imported.nodes.values()) == {("cut",), ("sum",)}


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [node("Neg", "b", "y"), node("Exp", "a", "b"), node("Relu", "x", "a")]
    network = model(nodes, {"x": [3]}, ["y"])
    imported = import_model(network.SerializeToString())
    assert imported.notes == ("the graph: nodes that came before what they need were moved",)
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_allclose(run(imported, {"x": x})[0], -np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_the_same_model_gives_the_same_module() -> None:
    import tvm_ffi

    data = relu([2, 3])
    first, second = import_model(data), import_model(load_model(data))
    assert tvm_ffi.structural_equal(first.module, second.module)
    assert first.source_sha256 == second.source_sha256 == hashlib.sha256(data).hexdigest()


def test_limits_are_the_callers() -> None:
    with pytest.raises(LimitError, match="limit of 0"):
        import_model(relu([2]), limits=Limits(nodes=0))
    with pytest.raises((LimitError, InvalidError), match="rank 3"):
        import_model(relu([1, 1, 1]), limits=Limits(rank=2))


# Operators that fail


def test_whatever_an_operator_raises_is_an_error_of_its_node() -> None:
    """A user's operator and a user's composition; neither may bring the compiler down."""
    from compiler.operators import composition, operator, registry

    def refusing(x: te.Tensor) -> te.Tensor:
        raise KeyError("no such thing")

    def greedy(graph: Graph, x: Value) -> Value:
        raise MemoryError

    operator("test.frontend::Refusing", schedule="elementwise")(refusing)
    composition("test.frontend::Greedy")(greedy)
    try:
        for name, error in (("Refusing", UnsupportedError), ("Greedy", LimitError)):
            nodes = [node(name, "x", "y", domain="test.frontend", name="mine")]
            network = model(nodes, {"x": [2]}, ["y"], domains=["test.frontend"])
            with pytest.raises(error, match=f"{name} node 'mine'"):
                import_model(network.SerializeToString())
    finally:
        for name in ("Refusing", "Greedy"):
            del registry._DECLARED["test.frontend", name]


def test_a_composition_sees_what_is_known() -> None:
    """Constants inside are computed at import, and calls say which node they are of."""
    from compiler.operators import composition, registry

    def scaled(graph: Graph, x: Value, factor: Value) -> Value:
        assert factor.constant is not None
        doubled = graph.call("Add", factor, factor)
        assert doubled.constant is not None
        return graph.call("Relu", graph.call("Mul", x, doubled))

    composition("test.frontend::Scaled")(scaled)
    try:
        nodes = [node("Scaled", "x factor", "y", domain="test.frontend", name="mine")]
        network = model(
            nodes, {"x": [3]}, ["y"], {"factor": np.array([1, 2, 3], np.float32)}, domains=["test.frontend"]
        )
        imported = import_model(network.SerializeToString())
    finally:
        del registry._DECLARED["test.frontend", "Scaled"]
    assert list(imported.nodes.values()) == [("mine",), ("mine",)]
    x = np.array([1, -1, 2], np.float32)
    assert run(imported, {"x": x})[0].tolist() == [2, 0, 12]


def test_operators_of_the_first_years_may_say_that_they_are_not_trained() -> None:
    statistics = {name: np.full(3, value, np.float32) for name, value in (("s", 2), ("b", 1), ("m", 0.5), ("v", 4))}
    nodes = [node("BatchNormalization", "x s b m v", "n", is_test=1, epsilon=0.0), node("Dropout", "n", "y", is_test=1)]
    imported = import_model(model(nodes, {"x": [2, 3]}, ["y"], statistics, opset=6).SerializeToString())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(run(imported, {"x": x})[0], (x - 0.5) + 1, rtol=1e-6)


def test_a_node_may_have_a_hundred_inputs() -> None:
    proto = model([node("Concat", "x " * 100, "y", axis=1)], {"x": [2, 1]}, ["y"])
    check(proto, import_model(proto.SerializeToString()), {"x": np.float32([[1], [2]])})
