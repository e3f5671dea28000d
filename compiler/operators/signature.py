"""What a declared function takes, read off its parameters, and checking a call against it."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from compiler.operators import refusals

SETUP_VALUE = "known when the model is set up"
Constant: TypeAlias = Annotated[np.ndarray[Any, Any], SETUP_VALUE]
"""An input whose elements the compiler must know: axes, pads, a shape, k.

``te.Tensor | Constant`` takes both: the array where it is known at compile time and has one element, else the tensor.
A function beside SETUP_VALUE says which arrays it takes instead.
"""

InputKind = Literal["tensor", "constant", "either"]
_OPSET = "opset"


def only(name: str, array: np.ndarray[Any, Any]) -> Any:
    """The one element of an input that has to be one number."""
    if array.size != 1:
        raise refusals.wrong_shape("must have one element", **{name: array})
    return array.item()


def has_one_element(array: np.ndarray[Any, Any]) -> bool:
    return array.size == 1


@dataclass(frozen=True)
class Input:
    """One positional parameter; a variadic one stands for all the inputs that are left. One that may be either is the
    array where it ``takes`` that.
    """

    name: str
    kind: InputKind
    optional: bool = False
    variadic: bool = False
    takes: Callable[[np.ndarray[Any, Any]], bool] = has_one_element


@dataclass(frozen=True)
class Attribute:
    """One keyword-only parameter; ``hint`` is its type without ``None``."""

    name: str
    hint: Any
    required: bool
    default: Any = None


@dataclass(frozen=True)
class Signature:
    inputs: tuple[Input, ...]
    attributes: Mapping[str, Attribute]
    wants_opset: bool
    results: int | None = None  # as many as the annotation says; None where it leaves that open

    @staticmethod
    def of(function: Callable[..., Any], leading: int = 0) -> Signature:
        """``leading`` parameters are not the caller's (a composition's graph)."""
        where = f"{function.__module__}.{function.__qualname__}"
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError, AttributeError) as error:
            raise refusals.declared_badly(where, f"an annotation cannot be read: {error}") from error
        inputs: list[Input] = []
        attributes: dict[str, Attribute] = {}
        for parameter in list(inspect.signature(function).parameters.values())[leading:]:
            if parameter.name not in hints:
                raise refusals.declared_badly(where, f"parameter {parameter.name!r} needs a type")
            hint = hints[parameter.name]
            if parameter.kind is parameter.VAR_KEYWORD:
                raise refusals.declared_badly(where, f"attributes must be named, not **{parameter.name}")
            if parameter.kind is parameter.KEYWORD_ONLY:
                attributes[parameter.name] = _attribute(where, parameter, hint)
            else:
                inputs.append(_input(where, parameter, hint))
        wants_opset = attributes.pop(_OPSET, None) is not None
        return Signature(tuple(inputs), attributes, wants_opset, _results(hints.get("return")))

    def input_at(self, position: int) -> Input | None:
        """The parameter that takes the input at ``position``; None where there is none."""
        if position < len(self.inputs):
            return self.inputs[position]
        last = self.inputs[-1] if self.inputs else None
        return last if last and last.variadic else None

    def bind(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments to call the function with; raises typed errors (TW21xx) for what it does not take.

        An input is a tensor (or Value), an array, or None where it is left out.
        """
        inputs = list(inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if len(inputs) > len(self.inputs) and not self.input_at(len(inputs) - 1):
            raise refusals.too_many_inputs(len(inputs), len(self.inputs))
        left = dict(attributes)
        arguments: list[Any] = []
        for position, parameter in enumerate(self.inputs):
            if parameter.variadic:
                arguments += [_argument(parameter, value, position) for value in inputs[position:]]
                if len(inputs) <= position and not parameter.optional:
                    raise refusals.missing_input(parameter.name, position)
                continue
            value = inputs[position] if position < len(inputs) else None
            if parameter.kind != "tensor" and parameter.name in left:  # older opsets give it as an attribute
                from_attribute = left.pop(parameter.name)
                if value is None and from_attribute is not None:
                    value = _as_array(from_attribute)
            arguments.append(_argument(parameter, value, position))
        # A node that says itself of which opset it is, is not of that of its domain.
        said = left.pop(_OPSET, None) if self.wants_opset else None
        keywords = self._keywords(left)
        if said is not None or (self.wants_opset and opset is not None):
            keywords[_OPSET] = opset if said is None else said
        return arguments, keywords

    def _keywords(self, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if name not in self.attributes:
                names = [parameter.name for parameter in self.inputs if parameter.kind != "tensor"]
                raise refusals.unknown_attribute(name, sorted([*self.attributes, *names]))
        keywords = {}
        for name, attribute in self.attributes.items():
            if given.get(name) is not None:
                keywords[name] = _checked(attribute, given[name])
            elif attribute.required:
                raise refusals.missing_attribute(name)
            else:
                keywords[name] = attribute.default
        return keywords


def _results(hint: Any) -> int | None:
    if getattr(hint, "__name__", "") in ("Tensor", "Value"):
        return 1
    members = typing.get_args(hint)
    return None if typing.get_origin(hint) is not tuple or Ellipsis in members else len(members)


def _options(hint: Any) -> list[Any]:
    """The members of a union, without None."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return [member for member in members if member is not types.NoneType]


def _input(where: str, parameter: inspect.Parameter, hint: Any) -> Input:
    options = _options(hint)
    constant = [option for option in options if SETUP_VALUE in getattr(option, "__metadata__", ())]
    tensors = [option for option in options if getattr(option, "__name__", "") in ("Tensor", "Value")]
    if len(constant) + len(tensors) != len(options) or not options:
        raise refusals.declared_badly(
            where, f"input {parameter.name!r} must be te.Tensor (Value in a composition) or Constant, not {hint}"
        )
    kind: InputKind = "either" if constant and tensors else "constant" if constant else "tensor"
    variadic = parameter.kind is parameter.VAR_POSITIONAL
    # One that may be None may be left out, also where others come behind it.
    optional = parameter.default is None or types.NoneType in typing.get_args(hint)
    takes = next((found for option in constant for found in option.__metadata__ if callable(found)), has_one_element)
    return Input(parameter.name, kind, optional, variadic, takes)


_SCALARS: dict[Any, str] = {int: "an integer", float: "a number", str: "a text", bool: "true or false (1 or 0)"}
_TUPLES: dict[Any, str] = {
    tuple[int, ...]: "a list of integers",
    tuple[float, ...]: "a list of numbers",
    tuple[str, ...]: "a list of texts",
}


def _attribute(where: str, parameter: inspect.Parameter, hint: Any) -> Attribute:
    options = _options(hint)
    if len(options) != 1 or not (options[0] in _SCALARS or options[0] in _TUPLES or _is_array(options[0])):
        raise refusals.declared_badly(where, f"attribute {parameter.name!r} cannot have type {hint}")
    required = parameter.default is parameter.empty
    return Attribute(parameter.name, options[0], required, None if required else parameter.default)


def _is_array(hint: Any) -> bool:
    return hint is np.ndarray or typing.get_origin(hint) is np.ndarray


def _argument(parameter: Input, value: Any, position: int) -> Any:
    if value is None:
        if not parameter.optional and not parameter.variadic:
            raise refusals.missing_input(parameter.name, position)
        return None
    if parameter.kind == "tensor":
        if isinstance(value, np.ndarray):
            raise refusals.not_a_tensor(parameter.name)
        return value
    if isinstance(value, np.ndarray):
        if parameter.kind == "either" and not parameter.takes(value):
            raise refusals.not_a_tensor(parameter.name)
        return value
    known = getattr(value, "constant", None)
    if parameter.kind == "either":
        return known if known is not None and parameter.takes(known) else value
    if known is None:
        raise refusals.not_constant(parameter.name)
    return known


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    """An attribute's value as the input that it became: integers are int64 there and numbers float32."""
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    return array.astype(np.float32 if array.dtype.kind == "f" and array.size else np.int64)


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float | np.floating)


_CONVERTERS: dict[Any, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    int: (lambda value: isinstance(value, int | np.integer), int),
    float: (_is_number, float),
    str: (lambda value: isinstance(value, str), str),
    bool: (lambda value: isinstance(value, bool | np.bool_) or (_is_int(value) and value in (0, 1)), bool),
}


def _checked(attribute: Attribute, value: Any) -> Any:
    """The value in the attribute's own type."""
    hint = attribute.hint
    if _is_array(hint):
        if not isinstance(value, np.ndarray):
            raise refusals.wrong_attribute(attribute.name, "a tensor", value)
        return value
    if hint in _SCALARS:
        fits, convert = _CONVERTERS[hint]
        if not fits(value):
            raise refusals.wrong_attribute(attribute.name, _SCALARS[hint], value)
        return convert(value)
    fits, convert = _CONVERTERS[typing.get_args(hint)[0]]
    if not isinstance(value, list | tuple | np.ndarray) or not all(fits(element) for element in value):
        raise refusals.wrong_attribute(attribute.name, _TUPLES[hint], value)
    return tuple(convert(element) for element in value)
