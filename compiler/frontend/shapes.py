"""The static shapes of a model's inputs: what the model says, completed by what the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from compiler.errors import InvalidError, LimitError, Problem, TilewrightError, UnsupportedError, UsageError
from compiler.frontend.limits import Limits
from compiler.frontend.naming import quoted
from compiler.frontend.tensors import check_dims


def resolve_shapes(
    inputs: Sequence[onnx.ValueInfoProto],
    shapes: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
    limits: Limits,
) -> dict[str, tuple[int, ...]]:
    """The shape of each input. UsageError for what is said of no input or against the model, or is left unsaid."""
    problems = _unused(inputs, shapes, dims)
    resolved: dict[str, tuple[int, ...]] = {}
    for info in inputs:
        try:
            resolved[info.name] = _resolve(info, shapes.get(info.name), dims)
        except TilewrightError as error:
            if not isinstance(error, UsageError):
                raise
            problems += error.problems
    if problems:
        raise UsageError(problems)
    for name, shape in resolved.items():
        if text := check_dims(shape, limits):
            kind = LimitError if "limit" in text else InvalidError
            raise kind(Problem("TW2006", f"input {quoted(name)}: {text}"))
    return resolved


def _unused(
    inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> list[Problem]:
    names = [info.name for info in inputs]
    symbols = {d.dim_param for info in inputs for d in info.type.tensor_type.shape.dim if d.dim_param}
    problems = []
    for name in shapes:
        if name not in names:
            known = f"inputs: {', '.join(map(quoted, names[:8]))}" if names else "the model has no inputs"
            problems.append(Problem("TW2041", f"a shape is given for {quoted(name)}, which is no input", hint=known))
    for name, extent in dims.items():
        if name not in symbols:
            known = f"symbolic dimensions: {', '.join(sorted(map(quoted, symbols))[:8]) or 'none'}"
            text = f"a value is given for dimension {quoted(name)}, which no input has"
            problems.append(Problem("TW2041", text, hint=known))
        elif extent < 0:
            problems.append(Problem("TW2042", f"dimension {quoted(name)} cannot be {extent}"))
    return problems


def _resolve(info: onnx.ValueInfoProto, given: Sequence[int] | None, dims: Mapping[str, int]) -> tuple[int, ...]:
    what = f"input {quoted(info.name)}"
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "untyped value"
        raise UnsupportedError(Problem("TW2031", f"{what} is a {kind}; only tensors can be inputs"))
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        if given is None:
            hint = f"give its shape: --shape {info.name}=..."
            raise UsageError(Problem("TW2040", f"{what} has no shape", hint=hint))
        return tuple(int(extent) for extent in given)
    declared = tensor.shape.dim
    if given is not None and len(given) != len(declared):
        text = f"{what} has rank {len(declared)}, but the given shape {list(given)} has rank {len(given)}"
        raise UsageError(Problem("TW2042", text))
    problems: list[Problem] = []
    shape: list[int] = []
    for axis, dim in enumerate(declared):
        fixed = dim.dim_value if dim.HasField("dim_value") else dims.get(dim.dim_param) if dim.dim_param else None
        extent = fixed if given is None else int(given[axis])
        if extent is None:
            shown = quoted(dim.dim_param) if dim.dim_param else "?"
            full = "x".join(_spelled(d) for d in declared)
            hint = f"give its shape: --shape {info.name}={full}"
            if dim.dim_param:
                hint = f"give the dimension: --dim {dim.dim_param}=..., or the shape: --shape {info.name}={full}"
            problems.append(Problem("TW2040", f"{what}: dimension {axis} ({shown}) is not known", hint=hint))
        elif fixed is not None and extent != fixed:
            text = f"{what}: dimension {axis} is {fixed}, but the given shape says {extent}"
            problems.append(Problem("TW2042", text))
        elif extent < 0:
            problems.append(Problem("TW2042", f"{what}: dimension {axis} cannot be {extent}"))
        else:
            shape.append(extent)
    if problems:
        raise UsageError(problems)
    return tuple(shape)


def _spelled(dim: onnx.TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else "?"
