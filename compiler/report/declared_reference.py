"""The reference of models with operators of one's own: ONNX's reference, and their own TE compiled for the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import patches
from compiler.errors import Problem, UnsupportedError
from compiler.operators import Declared, TensorType
from compiler.report.declared_types import attributes_of, declared_nodes

Array = np.ndarray[Any, Any]


class DeclaredReference:
    """Computes a model in its own precision; an operator of one's own by TVM's code of its TE for this machine."""

    def __init__(self, model: onnx.ModelProto) -> None:
        declared = {(one.domain, one.name): one for _, one in declared_nodes(model)}
        self._evaluator = ReferenceEvaluator(model, new_ops=[_evaluated(one) for one in declared.values()])

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            results: Any = self._evaluator.run(None, dict(inputs))
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:300]
            text = f"the reference does not run the model: {reason}"
            raise UnsupportedError(Problem("TW2702", text)) from error
        return dict(zip(self._evaluator.output_names, results, strict=True))


def computed(
    declared: Declared, inputs: Sequence[Array | None], attributes: Mapping[str, Any], outputs: int | None = None
) -> list[Array]:
    """The results of a declared operator by its own TE, compiled by TVM for this machine's CPU."""
    given: list[TensorType | Array | None] = []
    arrays: list[Array] = []
    for position, array in enumerate(inputs):
        parameter = declared.signature.input_at(position)
        if array is None or parameter is None or parameter.kind == "constant":
            given.append(array)
        else:
            given.append(TensorType(array.shape, array.dtype.name))
            arrays.append(array)
    function = declared.prim_func(given, attributes, outputs=outputs)
    made = [tvm.runtime.empty([int(n) for n in p.shape], str(p.dtype)) for p in function.params[len(arrays) :]]
    patches.apply()
    call = tvm.compile(function.with_attr("global_symbol", "main"), target="llvm")["main"]
    call(*[tvm.runtime.tensor(np.require(array, requirements="C")) for array in arrays], *made)
    return [result.numpy() for result in made]


def _evaluated(declared: Declared) -> Any:
    def run(self: Any, *inputs: Any, **_: Any) -> tuple[Array, ...]:
        node = self.onnx_node
        return tuple(computed(declared, inputs, attributes_of(node), len(node.output)))

    return type(declared.name, (OpRun,), {"op_domain": declared.domain, "_run": run})
