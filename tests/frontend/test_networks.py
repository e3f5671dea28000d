"""Networks as exporters write them, imported, run on the CPU and compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.errors import InvalidError, UnsupportedError
from compiler.frontend import import_model
from tests.frontend.cpu import check, expected
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

pytestmark = pytest.mark.usefixtures("as_planned")

RANDOM = np.random.default_rng(7)


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32) / 4


def residual_network() -> onnx.ModelProto:
    """Convolution, normalisation, a residual block, pooling and a classifier, with a symbolic batch."""
    constants: dict[str, np.ndarray] = {"head": array(5, 8), "bias": array(5)}
    nodes: list[onnx.NodeProto] = []

    def block(name: str, source: str, channels: tuple[int, int], stride: int) -> str:
        constants[f"{name}.weight"] = array(channels[1], channels[0], 3, 3)
        for part in ("gamma", "beta", "mean"):
            constants[f"{name}.{part}"] = array(channels[1])
        constants[f"{name}.variance"] = np.abs(array(channels[1])) + 0.5
        statistics = " ".join(f"{name}.{part}" for part in ("gamma", "beta", "mean", "variance"))
        nodes.append(
            node("Conv", f"{source} {name}.weight", f"{name}.c", name=name, pads=[1, 1, 1, 1], strides=[stride, stride])
        )
        nodes.append(node("BatchNormalization", f"{name}.c {statistics}", f"{name}.n", name=f"{name}/norm"))
        return f"{name}.n"

    nodes.append(node("Relu", block("stem", "x", (3, 8), 2), "stem.out"))
    nodes.append(node("Add", f"{block('body', 'stem.out', (8, 8), 1)} stem.out", "sum"))
    nodes.append(node("Relu", "sum", "features"))
    nodes.append(node("GlobalAveragePool", "features", "pooled"))
    nodes.append(node("Flatten", "pooled", "flat"))
    nodes.append(node("Gemm", "flat head bias", "y", transB=1))
    return model(nodes, {"x": ["batch", 3, 9, 11]}, ["y"], constants)


def attention_block(heads: int = 2, width: int = 8) -> onnx.ModelProto:
    """Self-attention with the shape arithmetic that PyTorch's exporter writes, for any batch and length."""
    constants: dict[str, np.ndarray] = {
        "zero": np.array(0),
        "one": np.array(1),
        "axis": np.array([0]),
        "heads": np.array([heads]),
        "split": np.array([width // heads]),
        "width": np.array([width]),
        "scale": np.float32(np.sqrt(width // heads)),
        "gamma": array(width),
        "beta": array(width),
        "half": np.float32(0.5),
        "root": np.float32(np.sqrt(2)),
        "unit": np.float32(1),
    }
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Gather", "shape one", "length", axis=0),
        node("Unsqueeze", "batch axis", "batch1"),
        node("Unsqueeze", "length axis", "length1"),
        node("Concat", "batch1 length1 heads split", "to_heads", axis=0),
        node("Concat", "batch1 length1 width", "from_heads", axis=0),
    ]
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        constants[f"w{part}"] = array(width, width)
        nodes += [
            node("MatMul", f"x w{part}", part, name=f"project/{part}"),
            node("Reshape", f"{part} to_heads", f"{part}4"),
            node("Transpose", f"{part}4", f"{part}t", perm=order),
        ]
    nodes += [
        node("MatMul", "qt kt", "scores"),
        node("Div", "scores scale", "scaled"),
        node("Softmax", "scaled", "weights", axis=-1),
        node("MatMul", "weights vt", "mixed"),
        node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        node("Reshape", "back from_heads", "joined"),
        node("Add", "joined x", "residual"),
        node("LayerNormalization", "residual gamma beta", "normal", axis=-1),
        node("Div", "normal root", "g0"),
        node("Erf", "g0", "g1"),
        node("Add", "g1 unit", "g2"),
        node("Mul", "normal g2", "g3"),
        node("Mul", "g3 half", "y"),
    ]
    return model(nodes, {"x": ["batch", "length", width]}, ["y"], constants)


@pytest.mark.parametrize("batch", [1, 3])
def test_residual_network(batch: int) -> None:
    network = residual_network()
    check(network, import_model(network.SerializeToString(), dims={"batch": batch}), {"x": array(batch, 3, 9, 11)})


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7)])
def test_attention_block(batch: int, length: int) -> None:
    network = attention_block()
    imported = import_model(network.SerializeToString(), shapes={"x": (batch, length, 8)})
    check(network, imported, {"x": array(batch, length, 8)})
    operators = {str(f.attrs["tw.operator"]) for f in imported.module.functions.values() if "tw.operator" in f.attrs}
    assert not operators & {"Shape", "Gather", "Unsqueeze", "Concat"}, "shape arithmetic is left in the module"


def test_half_precision_is_near() -> None:
    network = residual_network()
    imported = import_model(network.SerializeToString(), dims={"batch": 2}, precision="fp16")
    assert {port.dtype for port in (*imported.inputs, *imported.outputs)} == {"float16"}
    assert {port.onnx_dtype for port in (*imported.inputs, *imported.outputs)} == {"float32"}
    # But for biases of convolutions, which are added to sums in fp32.
    assert {constant.dtype for constant in imported.constants.values() if constant.ndim > 1} == {np.dtype(np.float16)}
    check(network, imported, {"x": array(2, 3, 9, 11)}, rtol=2e-2, atol=2e-2)


def test_alike_calls_share_a_function() -> None:
    nodes = [node("Relu", "x", "a"), node("Relu", "a", "b"), node("LeakyRelu", "b", "c", alpha=0.1)]
    nodes += [node("LeakyRelu", "c", "d", alpha=0.2), node("LeakyRelu", "d", "y", alpha=0.1)]
    imported = import_model(model(nodes, {"x": [2, 3]}, ["y"]).SerializeToString())
    assert len(imported.module.functions) == 1 + 3


def test_old_operator_sets() -> None:
    """Operator set 7: axes and pads are attributes, Softmax is over all the axes from its own."""
    nodes = [
        node("Pad", "x", "padded", pads=[0, 0, 1, 0, 0, 1], value=2.0),
        node("Slice", "padded", "cut", axes=[2], starts=[1], ends=[9223372036854775807]),
        node("Unsqueeze", "cut", "wide", axes=[0]),
        node("Squeeze", "wide", "thin", axes=[0]),
        node("ReduceSum", "thin", "sums", axes=[2], keepdims=1),
        node("Mul", "thin sums", "product"),
        node("Softmax", "product", "soft", axis=1),
        node("Split", "soft", "y z", axis=1),
    ]
    network = model(nodes, {"x": [2, 4, 4]}, ["y", "z"], opset=7)
    check(network, import_model(network.SerializeToString()), {"x": array(2, 4, 4)})


def test_functions_of_the_model() -> None:
    """A function with a default and a given attribute, an omitted input, and another function inside."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    slope = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    leaky = node("LeakyRelu", "a", "b")
    leaky.attribute.append(slope)
    inner = helper.make_function("local", "Leaky", ["a"], ["b"], [leaky], opsets, ["slope"])
    nodes = [node("Leaky", "a", "t", domain="local", slope=0.25), node("Clip", "t low", "c")]
    outer = helper.make_function("local", "Clipped", ["a", "low"], ["c"], nodes, opsets)
    calls = [node("Clipped", "x", "u", domain="local", name="first"), node("Clipped", "u least", "y", domain="local")]
    constants = {"least": np.float32(-0.05)}
    network = model(calls, {"x": [4, 5]}, ["y"], constants, domains=["local"], functions=[inner, outer])
    imported = import_model(network.SerializeToString())
    check(network, imported, {"x": array(4, 5)})
    assert "first/t/b" in {name for names in imported.nodes.values() for name in names}


def _graph(
    name: str, nodes: list[onnx.NodeProto], inputs: list[tuple[str, int]], outputs: list[str]
) -> onnx.GraphProto:
    """A graph inside a node; what it gives is float32, but for a condition called ``still``."""
    tensor = onnx.TensorProto.FLOAT
    infos = [helper.make_tensor_value_info(given, kind, None if kind == tensor else []) for given, kind in inputs]
    kinds = {"still": onnx.TensorProto.BOOL}
    results = [helper.make_tensor_value_info(out, kinds.get(out, tensor), None) for out in outputs]
    return helper.make_graph(nodes, name, infos, results)


def test_branches() -> None:
    """A known condition leaves one branch; one that is not selects between both."""
    then = _graph("then", [node("Exp", "x", "t")], [], ["t"])
    other = _graph("else", [node("Neg", "x", "e")], [], ["e"])
    branch = node("If", "c", "y", then_branch=then, else_branch=other)
    condition = node("Not", "flag", "c")
    network = model([condition, branch], {"x": [3], "flag": (onnx.TensorProto.BOOL, [])}, ["y"])
    imported = import_model(network.SerializeToString())
    for flag in (True, False):
        check(network, imported, {"x": array(3), "flag": np.array(flag)})
    known = model([condition, branch], {"x": [3]}, ["y"], {"flag": np.array(False)})
    imported = import_model(known.SerializeToString())
    check(known, imported, {"x": array(3)})
    assert len(imported.nodes) == 1


@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_what_a_branch_that_is_not_taken_picks_may_be_nowhere(operator: str) -> None:
    """Guards of indices, one inside another: the ways that they do not open are computed all the same."""
    data, picked = [5, 3], [1, 3] if operator in ("GatherElements", "ScatterElements") else [1]
    updates = " u" if operator.startswith("Scatter") else ""
    chosen = _graph("then", [node(operator, f"x i{updates}", "p"), node("ReduceSum", "p", "t", keepdims=0)], [], ["t"])
    outer = _graph("outer", [node("ReduceMax", "x", "o", keepdims=0)], [], ["o"])
    inner = _graph("else", [node("If", "low", "e", then_branch=outer, else_branch=chosen)], [], ["e"])
    nodes = [
        node("ReduceMax", "i", "most", keepdims=0),
        node("Greater", "most four", "high"),
        node("Less", "most zero", "low"),
        node("If", "high", "y", then_branch=_graph("then", [node("ReduceMin", "x", "n", keepdims=0)], [], ["n"]),
             else_branch=inner),
    ]  # fmt: skip
    inputs = {"x": data, "i": (onnx.TensorProto.INT64, [1, 1] if operator in ("GatherND", "ScatterND") else picked)}
    feeds = {"x": array(*data)}
    if updates:
        shape = picked if operator == "ScatterElements" else [1, 3]
        inputs["u"], feeds["u"] = shape, array(*shape)
    network = model(nodes, inputs, ["y"], {"four": np.array(4), "zero": np.array(0)})
    artifact = compiler.compile(network.SerializeToString(), chip="tiny")
    for index in (0, 4, 5, 300, 1 << 20, -1, -(1 << 20)):
        feeds["i"] = np.full(inputs["i"][1], index)
        found = artifact.run(feeds, hazards=True)["y"]
        np.testing.assert_allclose(found, expected(network, feeds)[0], rtol=1e-5)


def test_a_condition_of_one_element_has_no_axes_that_results_get() -> None:
    then, other = (_graph(kind, [node(kind, "x", kind)], [], [kind]) for kind in ("Neg", "Abs"))
    nodes = [node("Less", "x zero", "c"), node("If", "c", "y", then_branch=then, else_branch=other)]
    network = model(nodes, {"x": []}, ["y"], {"zero": np.zeros(1, np.float32)})
    imported = import_model(network.SerializeToString())
    assert imported.outputs[0].shape == ()
    for value in (-2.0, 3.0):
        check(network, imported, {"x": np.array(value, np.float32)})
    several = model([node("If", "c", "y", then_branch=then, else_branch=other)],
                    {"x": [], "c": (onnx.TensorProto.BOOL, [2])}, ["y"])  # fmt: skip
    with pytest.raises(InvalidError, match="the condition must be one value, not 2"):
        import_model(several.SerializeToString())


@pytest.mark.parametrize("opset", [7, 11, 12, 13])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}])
def test_what_is_known_is_computed_by_the_operator_set_of_the_model(
    operator: str, opset: int, attributes: dict[str, int]
) -> None:
    """Before operator set 13 these are of all axes from one on."""
    nodes = [node(operator, "w", "known", **attributes), node("Mul", "x known", "y")]
    network = model(nodes, {"x": [2, 3, 4]}, ["y"], {"w": array(2, 3, 4)}, opset=opset)
    check(network, import_model(network.SerializeToString()), {"x": array(2, 3, 4)})


def test_unrolled_loop() -> None:
    """State, a use of the counter, a scan output and a name from outside."""
    body = _graph(
        "body",
        [
            node("Cast", "i", "f", to=onnx.TensorProto.FLOAT),
            node("Add", "state f", "moved"),
            node("Mul", "moved x", "next"),
            node("Identity", "going", "still"),
            node("Neg", "next", "seen"),
        ],
        [("i", onnx.TensorProto.INT64), ("going", onnx.TensorProto.BOOL), ("state", onnx.TensorProto.FLOAT)],
        ["still", "next", "seen"],
    )
    loop = node("Loop", "trips _ start", "y seen_all", body=body)
    network = model([node("Abs", "x", "start"), loop], {"x": [3]}, ["y", "seen_all"], {"trips": np.array(4)})
    check(network, import_model(network.SerializeToString()), {"x": array(3)})


@pytest.mark.parametrize("declared", [[3], ["n"], None])
def test_a_loop_of_no_trip_has_the_scan_outputs_that_it_declares(declared: list[int | str] | None) -> None:
    body = _graph(
        "body",
        [node("Identity", "going", "still"), node("Identity", "state", "next"), node("Neg", "state", "seen")],
        [("i", onnx.TensorProto.INT64), ("going", onnx.TensorProto.BOOL), ("state", onnx.TensorProto.FLOAT)],
        ["still", "next", "seen"],
    )
    body.output[2].CopyFrom(helper.make_tensor_value_info("seen", onnx.TensorProto.FLOAT, declared))
    nodes = [node("Loop", "trips _ x", "same all", body=body), node("Concat", "all rows", "y", axis=0)]
    network = model(nodes, {"x": [3], "rows": [2, 3]}, ["y", "same"], {"trips": np.array(0)})
    if declared == [3]:
        check(network, import_model(network.SerializeToString()), {"x": array(3), "rows": array(2, 3)})
    else:
        with pytest.raises(UnsupportedError, match="scan outputs without a shape"):
            import_model(network.SerializeToString())


@pytest.mark.parametrize("trips", [np.iinfo(np.int64).max, np.iinfo(np.int32).max])
def test_while(trips: int) -> None:
    """As torch writes one: more trips than there can be, and a condition that is known when it ends the loop."""
    body = _graph(
        "body",
        [node("Mul", "state half", "next"), node("Less", "trip two", "still")],
        [("trip", onnx.TensorProto.INT64), ("going", onnx.TensorProto.BOOL), ("state", onnx.TensorProto.FLOAT)],
        ["still", "next"],
    )
    constants = {"trips": np.array(trips), "true": np.array(True)}
    constants |= {"two": np.array(2), "half": np.array(0.5, np.float32)}
    network = model([node("Loop", "trips true x", "y", body=body)], {"x": [3]}, ["y"], constants)
    check(network, import_model(network.SerializeToString()), {"x": array(3)})


def _doubled_until(most: int | None, *, seen: bool = False) -> onnx.ModelProto:
    """``y`` is doubled until one of its elements is 10 or more."""
    nodes = [
        node("Add", "state state", "next"),
        node("ReduceMax", "next", "largest", keepdims=0),
        node("Less", "largest ten", "still"),
    ]
    body = _graph(
        "body",
        [*nodes, node("Neg", "next", "seen")] if seen else nodes,
        [("trip", onnx.TensorProto.INT64), ("going", onnx.TensorProto.BOOL), ("state", onnx.TensorProto.FLOAT)],
        ["still", "next", "seen"] if seen else ["still", "next"],
    )
    constants = {"ten": np.array(10, np.float32), "trips": np.array(most or 0)}
    begin = [node("ReduceMax", "x", "given", keepdims=0), node("Less", "given ten", "first")]
    trips = "trips" if most else "_"
    loop = node("Loop", f"{trips} first x", "y all" if seen else "y", body=body)
    return model([*begin, loop], {"x": [3]}, ["y", "all"] if seen else ["y"], constants)


@pytest.mark.parametrize("largest", [0.1, 1, 4, 9, 20])
def test_a_loop_that_data_ends(largest: float) -> None:
    """After all of its trips, some or none."""
    network = _doubled_until(6)
    check(network, import_model(network.SerializeToString()), {"x": np.array([-2, largest, 0], np.float32)})


@pytest.mark.parametrize("spelled", ["And", "If"])
@pytest.mark.parametrize("largest", [0.1, 1, 20])
def test_a_loop_that_data_ends_before_its_own_condition_does(spelled: str, largest: float) -> None:
    """As torch writes ``while x.max() < 10 and trips < 6``."""
    both = [node("Less", "trip five", "more"), node("And", "small more", "still")]
    if spelled == "If":
        more = _graph("more", [node("Less", "trip five", "more")], [], ["more"])
        never = _graph("never", [node("Identity", "false", "no")], [], ["no"])
        for branch in (more, never):
            branch.output[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
        both = [node("If", "small", "still", then_branch=more, else_branch=never)]
    grown = [node("Add", "state state", "next"), node("ReduceMax", "next", "most", keepdims=0)]
    body = _graph(
        "body",
        [*grown, node("Less", "most ten", "small"), *both],
        [("trip", onnx.TensorProto.INT64), ("going", onnx.TensorProto.BOOL), ("state", onnx.TensorProto.FLOAT)],
        ["still", "next"],
    )
    constants = {"ten": np.array(10, np.float32), "five": np.array(5), "false": np.array(False)}
    constants["trips"] = np.array(np.iinfo(np.int64).max)
    begin = [node("ReduceMax", "x", "given", keepdims=0), node("Less", "given ten", "first")]
    network = model([*begin, node("Loop", "trips first x", "y", body=body)], {"x": [3]}, ["y"], constants)
    check(network, import_model(network.SerializeToString()), {"x": np.array([-2, largest, 0], np.float32)})


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("operator", ["And", "Or"])
@pytest.mark.parametrize("known", [False, True])
def test_logic_of_which_one_operand_is_known(operator: str, known: bool, shape: tuple[int, ...]) -> None:
    """One decides the result or is nothing; where it has more axes, only the former leaves nothing to compute."""
    nodes = [
        node("Greater", "x zero", "large"),
        node(operator, "known large", "both"),
        node("Where", "both x zero", "y"),
    ]
    constants = {"known": np.full(shape, known), "zero": np.zeros(1, np.float32)}
    network = model(nodes, {"x": [3]}, ["y"], constants)
    imported = import_model(network.SerializeToString())
    stays = shape == (2, 3) and known == (operator == "And")
    assert (operator in operators(imported)) == stays
    check(network, imported, {"x": np.array([-1, 0, 2], np.float32)})


@pytest.mark.parametrize(("most", "seen"), [(None, False), (6, True)])
def test_loops_of_which_a_run_decides_the_length_of_everything_are_refused(most: int | None, seen: bool) -> None:
    with pytest.raises(UnsupportedError, match=r"TW2035.*the loop's condition must be known at compile time"):
        import_model(_doubled_until(most, seen=seen).SerializeToString())


def test_scan() -> None:
    body = _graph(
        "body",
        [node("Add", "state part", "next"), node("Mul", "next part", "out")],
        [("state", onnx.TensorProto.FLOAT), ("part", onnx.TensorProto.FLOAT)],
        ["next", "out"],
    )
    scan = node("Scan", "start x", "last all", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])
    network = model([scan], {"start": [3], "x": [3, 5]}, ["last", "all"])
    check(network, import_model(network.SerializeToString()), {"start": array(3), "x": array(3, 5)})


def test_sequences() -> None:
    nodes = [
        node("SplitToSequence", "x sizes", "parts", axis=1),
        node("SequenceAt", "parts last", "tail"),
        node("Exp", "tail", "changed"),
        node("SequenceInsert", "parts changed first", "more"),
        node("SequenceLength", "more", "count"),
        node("ConcatFromSequence", "more", "joined", axis=1),
        node("Cast", "count", "number", to=onnx.TensorProto.FLOAT),
        node("Add", "joined number", "y"),
    ]
    constants = {"sizes": np.array([2, 3]), "last": np.array(-1), "first": np.array(0)}
    network = model(nodes, {"x": [2, 5]}, ["y"], constants)
    check(network, import_model(network.SerializeToString()), {"x": array(2, 5)})


def test_outputs_that_nothing_computes() -> None:
    """An input, a constant, the same value twice: each output is a tensor of its own kind."""
    nodes = [node("Relu", "x", "y"), node("Identity", "x", "same"), node("Shape", "x", "shape")]
    network = model(nodes, {"x": [2, 3]}, ["y", "same", "shape", "y2"], {})
    network.graph.node.append(node("Identity", "y", "y2"))
    network.graph.output[2].type.tensor_type.elem_type = onnx.TensorProto.INT64
    imported = import_model(network.SerializeToString())
    check(network, imported, {"x": array(2, 3)})
    assert imported.outputs[2].onnx_dtype == "int64"
    assert imported.outputs[2].dtype == "int32"


def test_dead_nodes_are_dropped() -> None:
    """What only a shape is taken of, and what nobody takes."""
    nodes = [
        node("Exp", "x", "only_its_shape"),
        node("Shape", "only_its_shape", "shape"),
        node("Frobnicate", "x", "nobody_asks"),
        node("Expand", "z shape", "y"),
    ]
    network = model(nodes, {"x": [2, 3], "z": [1, 3]}, ["y"])
    imported = import_model(network.SerializeToString())
    assert list(imported.nodes.values()) == [("y",)]


def test_initializers_in_any_field() -> None:
    """Raw and typed, of the types that one has and the other has."""
    tensors = [
        helper.make_tensor("f", onnx.TensorProto.FLOAT, [2], [1.5, 2.5]),
        helper.make_tensor("h", onnx.TensorProto.FLOAT16, [2], np.array([0.5, 1], np.float16)),
        numpy_helper.from_array(np.array([1.0, 2.0]), "d"),
    ]
    nodes = [
        node("Cast", "h", "hf", to=1),
        node("Cast", "d", "df", to=1),
        node("Add", "x f", "a"),
        node("Add", "a hf", "b"),
        node("Add", "b df", "y"),
    ]
    network = model(nodes, {"x": [2]}, ["y"])
    network.graph.initializer.extend(tensors)
    check(network, import_model(network.SerializeToString()), {"x": array(2)})


def test_operators_that_onnx_defines_by_others() -> None:
    """A loss whose definition holds another function, which takes its attributes from the first."""
    loss = node("SoftmaxCrossEntropyLoss", "x labels", "y", reduction="sum", ignore_index=1)
    network = model([loss], {"x": [4, 3], "labels": (onnx.TensorProto.INT64, [4])}, ["y"])
    imported = import_model(network.SerializeToString())
    check(network, imported, {"x": array(4, 3), "labels": np.array([0, 1, 2, 1])})
