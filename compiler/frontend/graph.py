"""The graph under construction: calls of operators' functions, each made once for all the calls that are alike."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import InvalidError, LimitError, Problem, TilewrightError, UnsupportedError
from compiler.frontend.folding import fold, is_foldable
from compiler.frontend.limits import Limits
from compiler.frontend.naming import quoted
from compiler.frontend.tensors import check_dims
from compiler.frontend.types import HINT, Types, is_compiled, numpy_dtype, onnx_type, onnx_type_of
from compiler.operators import Declared, TensorType, find_called
from compiler.operators.loading import described, place_in
from compiler.operators.signature import Input

Array = np.ndarray[Any, Any]
_COMPOSITION_DEPTH = 16
# Their results differ from the right ones by no more than a known operand does, so that one too small for its new type
# may become the least of it: beside a divisor it is what keeps that from being zero.
_GUARDS = ("Add", "Clip", "Max", "Where")


@dataclass(eq=False, slots=True)
class Value:
    """A tensor: ``dtype`` is its compiled type, ``constant`` its elements in ONNX's type where they are known."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    element_type: int
    constant: Array | None = None
    is_named: bool = False

    def name_once(self, name: str, element_type: int | None) -> None:
        """Take the model's name and type for it, unless it has one already: the same tensor may go by several names."""
        if not self.is_named:
            self.name, self.is_named = name, True
            self.element_type = self.element_type if element_type is None else element_type


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call of a PrimFunc: ``nodes`` are the ONNX nodes that it comes from, an inner one as ``outer/inner``."""

    function: Any
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    nodes: tuple[str, ...]
    known: tuple[Value, ...] = ()  # operands that the function has in it, rounded to its types

    @property
    def operator(self) -> str:
        """The full name of the declared one that the function is of."""
        return str(self.function.attrs["tw.operator"])

    @property
    def attributes(self) -> dict[str, Any]:
        """What the operator was called with beside its operands; of what it knows of these, a list of the elements."""
        found: dict[str, Any] = json.loads(str(self.function.attrs["tw.attributes"]))
        return {name: value["elements"] if isinstance(value, dict) else value for name, value in found.items()}


@dataclass(frozen=True)
class Recipe:
    """How an operator's function was made, so that it can be made for operands of other shapes."""

    declared: Declared
    arguments: tuple[TensorType | Array | None, ...]
    attributes: Mapping[str, Any]
    opset: int | None
    outputs: int | None
    number: int  # of the function among those that are made together

    def made_for(self, shapes: Sequence[Sequence[int]], told: Mapping[tuple[int, ...], tuple[int, ...]]) -> Any:
        """The function of operands of these shapes; where it is ``told`` a shape, it is told another one instead.
        Raises what the operator does where it has none for them.
        """
        others = iter(shapes)
        arguments: list[TensorType | Array | None] = []
        for each in self.arguments:
            if isinstance(each, TensorType):
                arguments.append(TensorType(tuple(next(others)), each.dtype))
            elif each is not None and each.ndim == 1 and (other := told.get(tuple(each.tolist()))) is not None:
                arguments.append(np.array(other, each.dtype))
            else:
                arguments.append(each)
        functions = self.declared.kernels(arguments, self.attributes, opset=self.opset, outputs=self.outputs)
        return functions[self.number]


@dataclass(frozen=True)
class _Instance:
    """``functions`` make one result each, or one of them makes all."""

    functions: tuple[Any, ...]
    results: tuple[TensorType, ...]


@dataclass
class GraphBuilder:
    """What compositions and the importer add calls to; it knows nothing of ONNX nodes but their names."""

    types: Types
    limits: Limits
    calls: list[Call] = field(default_factory=list)
    # The model's inputs whose values something here had to know.
    wanted_inputs: set[str] = field(default_factory=set)
    recipes: dict[Any, Recipe] = field(default_factory=dict)  # by function
    # Known values that are dequantised integers: these, their scale and zero point, as many as there are elements.
    dequantised: dict[Value, tuple[Array, Array, Array]] = field(default_factory=dict)
    scales_columns: bool = False  # whether the matrix unit scales sums of integers, each column by its own
    _instances: dict[Any, _Instance] = field(default_factory=dict)
    _origin: list[str] = field(default_factory=list)
    _depth: int = 0

    @contextmanager
    def inside(self, node: str) -> Iterator[None]:
        """Calls made inside are the work of the ONNX node ``node``."""
        self._origin.append(node)
        try:
            yield
        finally:
            self._origin.pop()

    @property
    def origin(self) -> str:
        return "/".join(self._origin)

    def input(self, name: str, shape: tuple[int, ...], element_type: int) -> Value:
        return Value(name, shape, self.types.compiled(element_type, name), element_type, is_named=True)

    def constant(self, array: Array, name: str = "", element_type: int | None = None) -> Value:
        """A value that is known; UnsupportedError when the chip has no type for it and it is ever computed with."""
        array = np.asarray(array)
        known = onnx_type_of(array) if element_type is None else element_type
        try:
            dtype = self.types.compiled(known)
        except UnsupportedError:
            dtype = array.dtype.name
        return Value(name or f"{self.origin or 'constant'}_constant", array.shape, dtype, known, array, bool(name))

    def wide(self, value: Value) -> Value:
        if value.constant is None or value.dtype not in ("float16", "bfloat16"):
            return value
        return Value(value.name, value.shape, "float32", onnx_type("float32"), np.asarray(value.constant, np.float32))

    def known(self, value: Value, what: str) -> Array:
        """The elements of a value that decides a shape or where the computation goes: it must be known by now."""
        if value.constant is not None:
            return value.constant
        names = self._inputs_of(value)
        self.wanted_inputs.update(names)
        shown = ", ".join(map(quoted, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        text = f"{what} must be known at compile time, but it depends on the model's input {shown}"
        hint = f"give its value: --value {names[0] if names else 'NAME'}=..., or values= in Python"
        raise UnsupportedError(Problem("TW2035", text, hint=hint))

    def maker(self, value: Value) -> Call | None:
        """The call that makes a value, most often one of the last ones; None for inputs and constants."""
        return next((call for call in reversed(self.calls) if value in call.results), None)

    def inputs_of(self, call: Call, operands: Iterable[Value]) -> list[Value | Array | None]:
        """What a call was given as its operator's inputs, with other operands: for the same call again."""
        given, known = iter(operands), iter(call.known)
        return [
            None if each is None else next(given) if isinstance(each, TensorType) else next(known)
            for each in self.recipes[call.function].arguments
        ]

    def taken(self, before: int, result: Value, nodes: Iterable[str]) -> list[Call]:
        """The calls made since there were ``before``, out again: work of ``nodes``; the last makes ``result``."""
        made, own = self.calls[before:], tuple(dict.fromkeys(nodes))
        del self.calls[before:]
        results = [*(call.results for call in made[:-1]), (result,)]
        return [Call(call.function, call.operands, of, own, call.known) for call, of in zip(made, results, strict=True)]

    def _inputs_of(self, value: Value) -> list[str]:
        """The names of the model's inputs that a value is computed from."""
        makers = {result: call for call in self.calls for result in call.results}
        names: list[str] = []
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop()
            maker = makers.get(current)
            if maker is None:
                names.append(current.name)
                continue
            operands = [operand for operand in maker.operands if operand.constant is None and operand not in seen]
            waiting += operands
            seen.update(operands)
        return sorted(names)

    def call(self, name: str, *values: Any, **attributes: Any) -> Any:
        """See :class:`compiler.operators.graph.Graph`; what is known is computed now."""
        results = self._folded(name, values, attributes)
        if results is None:
            results = self.apply(find_called(name), values, attributes)
        return results[0] if len(results) == 1 else results

    def apply(
        self,
        declared: Declared,
        inputs: Sequence[Value | Array | None],
        attributes: Mapping[str, Any],
        *,
        opset: int | None = None,
        outputs: int | None = None,
    ) -> tuple[Value, ...]:
        """The results of a declared operator; ``outputs`` of them, all where it is not said."""
        values = [self.constant(value) if isinstance(value, np.ndarray) else value for value in inputs]
        self._check_constants(declared, values)
        if declared.is_composition:
            if self._depth >= _COMPOSITION_DEPTH:
                raise LimitError(Problem("TW2033", f"{declared.full_name}: compositions are nested too deeply"))
            self._depth += 1
            try:
                with _refusing(declared):
                    return declared.expand(self, values, attributes, opset=opset)[:outputs]
            finally:
                self._depth -= 1
        operands: list[Value] = []
        known: list[Value] = []
        arguments: list[TensorType | Array | None] = []
        for position, value in enumerate(values):
            parameter = declared.signature.input_at(position)
            argument = self._argument(value, parameter, guards=declared.full_name in _GUARDS)
            arguments.append(argument)
            if value is not None:
                (operands if isinstance(argument, TensorType) else known).append(value)
        instance = self._instance(declared, arguments, attributes, opset, outputs)
        if len(self.calls) >= self.limits.expanded_nodes:
            text = f"{declared.full_name}: the model takes more calls than the limit of {self.limits.expanded_nodes}"
            raise LimitError(Problem("TW2033", text))
        name = self.origin or declared.name
        results = tuple(
            self.constant(np.empty(t.shape, numpy_dtype(t.dtype)))
            if 0 in t.shape
            else Value(name if len(instance.results) == 1 else f"{name}_{at}", t.shape, t.dtype, type_like(t, values))
            for at, t in enumerate(instance.results)
        )
        nodes = (self.origin,) if self._origin else ()
        each = [results] if len(instance.functions) == 1 else [(result,) for result in results]
        for function, made in zip(instance.functions, each, strict=True):
            if all(0 in result.shape for result in made):
                continue  # there is nothing to compute
            self.calls.append(Call(function, tuple(operands), made, nodes, tuple(known)))
        return results

    def _check_constants(self, declared: Declared, values: Sequence[Value | None]) -> None:
        """All that must be known and is not, at once: whoever gives the values should not have to ask again."""
        problems: list[Problem] = []
        for position, value in enumerate(values):
            parameter = declared.signature.input_at(position)
            if value is not None and parameter is not None and parameter.kind == "constant":
                try:
                    self.known(value, f"{declared.full_name}: input {parameter.name!r}")
                except UnsupportedError as error:
                    problems += error.problems
        if problems:
            raise UnsupportedError(problems)

    def _argument(self, value: Value | None, parameter: Input | None, *, guards: bool) -> TensorType | Array | None:
        """A value as an operator takes it: constants it must know as the model has them, others in compiled types."""
        if value is None:
            return None
        if value.constant is not None and parameter is not None:
            if parameter.kind == "constant":
                return value.constant
            if parameter.kind == "either" and parameter.takes(value.constant):
                convert = self.types.convert_guard if guards else self.types.convert
                return convert(value.constant, value.dtype, value.name)
        _check_dtype(value)
        return TensorType(value.shape, value.dtype)

    def _instance(
        self,
        declared: Declared,
        arguments: Sequence[TensorType | Array | None],
        attributes: Mapping[str, Any],
        opset: int | None,
        outputs: int | None,
    ) -> _Instance:
        key = (
            declared.full_name,
            tuple(_hashable(argument) for argument in arguments),
            tuple((name, _hashable(value)) for name, value in sorted(attributes.items())),
            opset if declared.signature.wants_opset else None,
            outputs,
        )
        found = self._instances.get(key)
        if found is None:
            found = self._instances[key] = self._made(declared, arguments, attributes, opset, outputs)
        return found

    def _made(
        self,
        declared: Declared,
        arguments: Sequence[TensorType | Array | None],
        attributes: Mapping[str, Any],
        opset: int | None,
        outputs: int | None,
    ) -> _Instance:
        with _refusing(declared):
            functions = declared.kernels(arguments, attributes, opset=opset, outputs=outputs)
        tensors = sum(isinstance(argument, TensorType) for argument in arguments)
        results = tuple(
            TensorType(tuple(int(extent) for extent in parameter.shape), str(parameter.dtype))
            for function in functions
            for parameter in list(function.params)[tensors:]
        )
        for result in results:
            if not is_compiled(result.dtype):
                text = f"{declared.full_name}: results of {result.dtype} are not supported"
                raise UnsupportedError(Problem("TW2031", text, hint=HINT))
            if text := check_dims(result.shape, self.limits):
                kind = LimitError if "limit" in text else InvalidError
                raise kind(Problem("TW2006", f"{declared.full_name}: its output: {text}"))
        for number, function in enumerate(functions):
            self.recipes[function] = Recipe(declared, tuple(arguments), dict(attributes), opset, outputs, number)
        return _Instance(functions, results)

    def _folded(
        self, name: str, values: Sequence[Value | Array | None], attributes: Mapping[str, Any]
    ) -> tuple[Value, ...] | None:
        arrays = [value.constant if isinstance(value, Value) else value for value in values]
        known = [a for v, a in zip(values, arrays, strict=True) if v is not None]
        if not is_foldable(name) or not known or any(array is None for array in known):
            return None
        sizes = arrays[1] if name == "Split" and len(arrays) > 1 else None
        outputs = int(attributes.get("num_outputs", 1)) if sizes is None else sizes.size
        results = fold(name, self.limits.opset[1], arrays, attributes, outputs, self.limits)
        return None if results is None else tuple(self.constant(array) for array in results)


@contextmanager
def _refusing(declared: Declared) -> Iterator[None]:
    """Operators' functions, a user's among them, and TVM raise anything for what they cannot compute."""
    try:
        yield
    except TilewrightError:
        raise
    except (RecursionError, MemoryError) as error:
        what = "memory" if isinstance(error, MemoryError) else "depth"
        text = f"{declared.full_name}: building it takes too much {what}"
        raise LimitError(Problem("TW2033", text)) from error
    except Exception as error:
        place = place_in(error, Path(declared.function.__code__.co_filename))
        text = f"{declared.full_name}: cannot be built for these inputs: {described(error)}"
        raise UnsupportedError(Problem("TW2034", text, place, _what_to_write(error))) from error


def _what_to_write(error: Exception) -> str:
    text = str(error)
    if "kDLInt" in text:
        return 'of floats: tirx.floor(a / b), tirx.fmod(a, b); or make integers of them: x.astype("int32")'
    if "and / or / not" in text or "truth value" in text:
        return "elements are not known when TE is written: tirx.Select(condition, a, b), tirx.all(...), tirx.any(...)"
    return ""


def type_like(result: TensorType | Value, values: Sequence[Value | None]) -> int:
    """The ONNX element type of a result that no schema has: that of the first value that is compiled to the same."""
    alike = (value.element_type for value in values if value is not None and value.dtype == result.dtype)
    return next(alike, onnx_type(result.dtype))


def _check_dtype(value: Value) -> None:
    """UnsupportedError unless the chip has a type for ``value``."""
    try:
        numpy_dtype(value.dtype)
    except KeyError:
        text = f"{quoted(value.name)} is a tensor of {value.dtype}, which is not supported"
        raise UnsupportedError(Problem("TW2031", text)) from None


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value
