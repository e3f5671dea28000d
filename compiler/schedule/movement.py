"""Groups of one operator that says where something lies, for graphs in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from compiler.operators import find


def operator_kernel(operator: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """The PrimFunc of an operator of one kernel."""
    found = find("", operator)
    if found is None:
        raise LookupError(operator)
    (func,) = found.kernels(list(inputs), dict(attributes))
    return func


def added_movement(builder: Any, func: Any, value: Any) -> Any:
    """The group of a PrimFunc that moves parts of ``value``, in the module that the builder makes."""
    name = str(func.attrs["tw.operator"]).lower()
    function = builder.add_func(func.without_attr("global_symbol"), name)
    *given, result = (relax.TensorType([int(n) for n in each.shape], str(each.dtype)) for each in func.params)
    params = [relax.Var(f"p{index}", kind) for index, kind in enumerate(given)]
    attrs = {"tw.group": "movement", "tw.calls": [str(value.name)]}
    with builder.function(f"{name}_{len(builder.get().functions)}", params, attrs=attrs, private=True):
        with builder.dataflow():
            output = builder.emit_output(relax.call_tir(function, params, [result]))
        return builder.emit_func_output(output)
