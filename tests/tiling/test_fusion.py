"""The stages of a group as one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from onnx import TensorProto, helper
from tvm import relax, s_tir, te, tirx
from tvm_ffi import structural_walk

from compiler import graph
from compiler.frontend import import_model
from compiler.target import load_chip
from compiler.tiling.fusion import fuse
from passes.graph.group_operators import GroupOperators
from tests.host import for_host

CHIP = load_chip("tiny")


def fused(nodes: list[Any], inputs: dict[str, tuple[int, ...]]) -> Any:
    """The one kernel of a model whose operators are one group."""
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    grouped = GroupOperators().run(import_model(model.SerializeToString()).module, CHIP)
    (call,) = graph.read(grouped["main"]).calls
    return fuse(grouped, grouped[call.callee])


def on_cpu(func: Any, *inputs: np.ndarray) -> np.ndarray:
    out = tvm.runtime.empty([int(n) for n in func.params[-1].shape], "float32")
    executable = for_host(func.with_attr("global_symbol", "main"))
    executable(*(tvm.runtime.tensor(array) for array in inputs), out)
    return np.asarray(out.numpy())


def test_intermediates_are_the_kernels_own() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Sigmoid", ["a"], ["y"])]
    func = fused(nodes, {"x": (3, 4), "b": (4,)})
    assert [[int(n) for n in p.shape] for p in func.params] == [[3, 4], [4], [3, 4]]
    x, b = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(on_cpu(func, x, b), 1 / (1 + np.exp(-(x + b))), rtol=1e-6)


def test_one_operator_used_twice() -> None:
    nodes = [helper.make_node("Sigmoid", ["x"], ["a"]), helper.make_node("Sigmoid", ["a"], ["y"])]
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    once = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(on_cpu(fused(nodes, {"x": (3, 4)}), x), 1 / (1 + np.exp(-once)), rtol=1e-6)


def test_one_array_given_twice() -> None:
    func = fused([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": (3, 4)})
    assert len(func.params) == 2
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(on_cpu(func, x), x * x)


def test_a_transposed_operand_is_read_where_it_was() -> None:
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["a", "t"], ["y"])]
    func = fused(nodes, {"a": (3, 4), "b": (5, 4)})
    stages: list[str] = []
    structural_walk(func.body, (s_tir.SBlock, lambda block: stages.append(block.name_hint)))
    assert sorted(stages) == ["matmul", "root"]
    inputs = {p.name: np.arange(20 if int(p.shape[0]) == 5 else 12, dtype=np.float32) for p in func.params[:-1]}
    arrays = [inputs[p.name].reshape([int(n) for n in p.shape]) for p in func.params[:-1]]
    a, b = sorted(arrays, key=len)
    np.testing.assert_allclose(on_cpu(func, *arrays), a @ b.T)


def test_a_matrix_times_itself_transposed_reads_it_twice() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    func = fused(nodes, {"x": (3, 4)})
    assert [[int(n) for n in p.shape] for p in func.params] == [[3, 4], [3, 4], [3, 3]]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(on_cpu(func, x, x), x @ x.T)


def stages_of(func: Any) -> list[str]:
    names: list[str] = []
    structural_walk(func.body, (s_tir.SBlock, lambda block: names.append(block.name_hint)))
    return [name for name in names if name != "root"]


BIASED = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["x"])]
GATED = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])]
SHAPES: dict[str, tuple[int, ...]] = {"a": (3, 4), "w": (4, 5), "b": (5,)}


def test_a_chain_behind_a_product_is_one_value() -> None:
    func = fused([*BIASED, *GATED], SHAPES)
    assert len(stages_of(func)) == 3  # the product, what takes it out, and the rest
    a, w, b = (np.linspace(-1, 1, np.prod(shape), dtype=np.float32).reshape(shape) for shape in SHAPES.values())
    x = a @ w + b
    np.testing.assert_allclose(on_cpu(func, a, w, b), x / (1 + np.exp(-x)), rtol=1e-5)


def test_what_several_stages_read_is_a_stage() -> None:
    nodes = [*BIASED, helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["s", "s"], ["t"])]
    nodes += [helper.make_node("Relu", ["t"], ["r"]), helper.make_node("Mul", ["t", "r"], ["y"])]
    assert len(stages_of(fused(nodes, SHAPES))) == 4  # `s` is read by one stage, `t` by two, `r` by one


def test_what_reads_a_product_stands_alone() -> None:
    assert len(stages_of(fused([*BIASED, helper.make_node("Relu", ["x"], ["y"])], SHAPES))) == 3


def test_without_a_product_templates_decide() -> None:
    assert len(stages_of(fused(GATED, {"x": (3, 4)}))) == 2


def test_names_of_blocks_are_unique() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a0"])]
    nodes += [helper.make_node("Relu", [f"a{k}"], [f"a{k + 1}" if k < 2 else "y"]) for k in range(3)]
    names: list[str] = []
    kernel = fused(nodes, {"x": (3, 4)})
    structural_walk(kernel, (s_tir.SBlock, lambda node: names.append(node.name_hint)))
    assert len(names) == len(set(names))


def test_a_body_knows_who_reads_what() -> None:
    x = te.placeholder((4,), "float32", "x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + tirx.const(1, "float32"), "y")])
    builder = relax.BlockBuilder()
    value = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [value]):
        with builder.dataflow():
            callee = builder.add_func(func, "add")
            result = builder.emit_output(relax.call_tir(callee, [value], value.ty))
        builder.emit_func_output(result)
    body = graph.read(builder.get()["main"])
    assert [call.callee for call in body.calls] == ["add"]
    assert body.consumers[value] == [body.calls[0]]
    assert body.consumers[body.results[0]][-1] is None


def test_an_array_given_twice_is_one_that_a_block_reads_once() -> None:
    """Schedules stage what a block reads buffer by buffer."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"])]
    blocks: list[Any] = []
    structural_walk(fused(nodes, {"x": (3, 4)}).body, (s_tir.SBlock, blocks.append))
    assert [len(block.reads) for block in blocks if block.name_hint != "root"] == [1]


def test_a_product_of_a_matrix_with_itself_reads_it_as_two() -> None:
    func = fused([helper.make_node("MatMul", ["x", "x"], ["y"])], {"x": (3, 3)})
    assert len(func.params) == 3
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_allclose(on_cpu(func, x, x), x @ x)


def test_groups_that_are_alike_are_fused_once() -> None:
    nodes = []
    for at, (first, second, third) in enumerate(("aba", "cdd", "bcb")):
        nodes.append(helper.make_node("Sub", [first, second], [f"s{at}"]))
        nodes.append(helper.make_node("Mul", [f"s{at}", third], [f"y{at}"]))
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,)) for name in "abcd"]
    made = [helper.make_tensor_value_info(f"y{at}", TensorProto.FLOAT, None) for at in range(3)]
    model = helper.make_model(helper.make_graph(nodes, "g", given, made), opset_imports=[helper.make_opsetid("", 17)])
    grouped = GroupOperators().run(import_model(model.SerializeToString()).module, CHIP)
    first, second, third = (fuse(grouped, grouped[call.callee]) for call in graph.read(grouped["main"]).calls)
    assert first.same_as(third)
    assert not first.same_as(second)
    x, y = np.array([5, 6, 7, 8], np.float32), np.full(4, 2, np.float32)
    np.testing.assert_array_equal(on_cpu(first, x, y), (x - y) * x)
    np.testing.assert_array_equal(on_cpu(second, x, y), (x - y) * y)
