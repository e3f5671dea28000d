"""Declaring operators and finding them again.

An operator computes its outputs in TE; a composition builds them out of calls of other operators. Both are plain
functions: positional parameters are the inputs, keyword-only parameters the attributes (``opset`` is given the opset of
the model, where a node does not say its own), annotations and defaults are all that is said about them. See
:mod:`compiler.operators.signature`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from compiler.errors import TilewrightError
from compiler.operators import own_schedules, refusals
from compiler.operators.graph import Graph
from compiler.operators.results import check_lengths, check_results, check_stages
from compiler.operators.signature import Signature

SCHEDULES: dict[str, str] = {
    "elementwise": "an output element needs the input elements of the same, or the broadcast, position",
    "reduction": "some axes are reduced; elementwise work before and after",
    "softmax": "several stages over the same rows, each as wide as a row",
    "norm": "statistics of a row, then elementwise work on it",
    "matmul": "products of matrices",
    "convolution": "windows times weights, summed over channels",
    "pooling": "windows, channel by channel",
    "movement": "elements change their places only: transpose, slice, pad, concatenate, tile",
    "gather": "rows picked by the data",
    "scatter": "rows put where the data says",
    "recurrence": "steps that each need the result of the one before",
    "suppression": "steps that each drop what is too near the best",
    "sorting": "rows, block by block, in order of their elements",
    "running": "sums and products of all elements before each one",
    "putting": "elements put into rows where their indices say",
    "attention": "softmax between two products",
    "view": "the same bytes under another shape; so is what only moves elements, and leaves them in order",
    "library": "loops of its own: the function returns a PrimFunc",
}

# What these leave as it was needs no kernel; elementwise operators that do so share one with what is beside them.
MAY_BE_VIEWS = frozenset({"movement", "gather", "reduction"})
# Templates of these write an operator again, out of its attributes, which they know of the compiler's own ones only.
WRITTEN_AGAIN = frozenset({"recurrence", "suppression", "sorting", "running", "putting"})

Array = np.ndarray[Any, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
_STANDARD = ("", "ai.onnx")
_MAX_SPELLED_ELEMENTS = 64
_NAME = re.compile(r"([A-Za-z_][\w.-]*::)?[A-Za-z_]\w*")


@dataclass(frozen=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Declared:
    """One operator or composition under one of its names; a composition has no schedule."""

    domain: str
    name: str
    function: Callable[..., Any]
    signature: Signature
    schedule: str | None
    sweep: Mapping[str, Any] | None = None  # see compiler.operators.sweep

    @property
    def is_composition(self) -> bool:
        return self.schedule is None

    @property
    def full_name(self) -> str:
        """As ``graph.call`` takes it: the bare name in ONNX's own domain."""
        return f"{self.domain}::{self.name}" if self.domain else self.name

    def instantiate(
        self,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        *,
        opset: int | None = None,
        outputs: int | None = None,
    ) -> tuple[Any, ...]:
        """An operator's results for ``inputs`` (te.Tensor, constant array, or None where one is left out).

        They are te.Tensors, the first ``outputs`` of them; or one PrimFunc, of a function that writes its own loops.
        """
        arguments, keywords = self._bound(inputs, attributes, opset)
        return self._computed(arguments, keywords)[:outputs]

    def expand(
        self, graph: Graph, inputs: Sequence[Any], attributes: Mapping[str, Any], *, opset: int | None = None
    ) -> tuple[Any, ...]:
        """A composition's results, as Values that ``graph`` made; arrays among the inputs become constants."""
        values = []
        for position, value in enumerate(inputs):
            parameter = self.signature.input_at(position)
            is_data = isinstance(value, np.ndarray) and parameter is not None and parameter.kind == "tensor"
            values.append(graph.constant(value) if is_data else value)
        arguments, keywords = self._bound(values, attributes, opset)
        return self._called([graph, *arguments], keywords)

    def prim_func(
        self,
        inputs: Sequence[TensorType | Array | None],
        attributes: Mapping[str, Any],
        *,
        opset: int | None = None,
        outputs: int | None = None,
    ) -> Any:
        """The operator as a ``tirx.PrimFunc``: its parameters are the inputs that are tensors, then the outputs."""
        tensors, results, attrs = self._results(inputs, attributes, opset, outputs)
        return self._made(tensors, results, attrs)

    def kernels(
        self,
        inputs: Sequence[TensorType | Array | None],
        attributes: Mapping[str, Any],
        *,
        opset: int | None = None,
        outputs: int | None = None,
    ) -> tuple[Any, ...]:
        """The operator as PrimFuncs that each have one result, in order; as one, where it has loops of its own.

        What several results share is worked out for each: one tile rarely serves two results.
        """
        tensors, results, attrs = self._results(inputs, attributes, opset, outputs)
        if len(results) == 1 or _has_loops(results):
            return (self._made(tensors, results, attrs),)
        return tuple(self._made(tensors, (result,), attrs) for result in results)

    def _made(self, tensors: Sequence[Any], results: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        try:
            return _function(tensors, results, attrs)
        except TilewrightError as error:
            raise self._named(error) from error

    def _results(
        self,
        inputs: Sequence[TensorType | Array | None],
        attributes: Mapping[str, Any],
        opset: int | None,
        outputs: int | None,
    ) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
        """Placeholders for the inputs that are tensors, the results, and the attributes of a PrimFunc of them."""
        from tvm import te

        tensors = []
        arguments: list[Any] = []
        for position, given in enumerate(inputs):
            if isinstance(given, TensorType):
                parameter = self.signature.input_at(position)
                name = parameter.name if parameter and not parameter.variadic else f"x{position}"
                tensors.append(te.placeholder(given.shape, given.dtype, name))
                arguments.append(tensors[-1])
            else:
                arguments.append(given)
        positional, keywords = self._bound(arguments, attributes, opset)
        results = self._computed(positional, keywords)[:outputs]
        attrs = {
            "tw.operator": self.full_name,
            "tw.schedule": self._class_of(results),
            "tw.attributes": self._canonical(positional, keywords),
        }
        return tensors, results, attrs

    def _class_of(self, results: tuple[Any, ...]) -> str | None:
        """The class that the results are scheduled as: of others' operators the one of their stages or loops."""
        if self.schedule not in WRITTEN_AGAIN or self.function.__module__.startswith(f"{__package__}."):
            return self.schedule
        return "library" if _has_loops(results) else "reduction"

    def _bound(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int | None
    ) -> tuple[list[Any], dict[str, Any]]:
        try:
            return self.signature.bind(inputs, attributes, opset)
        except TilewrightError as error:
            raise self._named(error) from error

    def _computed(self, arguments: list[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
        results = self._called(arguments, keywords)
        try:
            check_results(results, self.signature.results)
            check_stages(results)
        except TilewrightError as error:
            raise self._named(error) from error
        return results

    def _called(self, arguments: list[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
        try:
            result = self.function(*arguments, **keywords)
        except TilewrightError as error:
            raise self._named(error) from error
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    def _named(self, error: TilewrightError) -> TilewrightError:
        return type(error)([replace(p, message=f"{self.full_name}: {p.message}") for p in error.problems])

    def _canonical(self, arguments: list[Any], keywords: dict[str, Any]) -> str:
        constants = {
            parameter.name: argument
            for parameter, argument in zip(self.signature.inputs, arguments, strict=False)
            if isinstance(argument, np.ndarray)
        }
        values = {name: _plain(value) for name, value in {**keywords, **constants}.items() if value is not None}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _has_loops(results: Sequence[Any]) -> bool:
    from tvm import tirx

    return isinstance(results[0], tirx.PrimFunc)


def _function(tensors: Sequence[Any], results: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    from tvm import te

    from compiler.tir.bordered_reads import bordered_reads
    from compiler.tir.displacement import copies_in_order
    from compiler.tir.from_zero import from_zero
    from compiler.tir.own_names import with_own_names
    from compiler.tir.products import columns_second
    from compiler.tir.reductions_apart import reduces_several, reductions_apart
    from compiler.tir.turned_reads import turned_reads
    from compiler.tir.whole_axes import whole_axes
    from compiler.tir.wide_sums import wide_sums

    if _has_loops(results):
        function = results[0]
    else:
        made = te.create_prim_func([*tensors, *results])
        check_lengths(made)
        written = reductions_apart(from_zero(with_own_names(made)))
        if (stage := reduces_several(written)) is not None:
            raise refusals.several_reduced(stage)
        function = whole_axes(turned_reads(bordered_reads(wide_sums(written))))
    if attrs["tw.schedule"] == "matmul":
        function = columns_second(function)
    if attrs["tw.schedule"] in MAY_BE_VIEWS and copies_in_order(function):
        attrs = {**attrs, "tw.schedule": "view"}
    return function.with_attrs(attrs)


def operator(
    *names: str, schedule: str | Callable[..., Any] = "", sweep: Mapping[str, Any] | None = None
) -> Callable[[Function], Function]:
    """Declare a function of te.Tensors as the operator(s) ``names`` (``"domain::Name"``, or an ONNX name).

    ``schedule`` is one of SCHEDULES, or a template of one's own (`compiler.operators.own_schedules`); ``sweep`` says
    what `tilewright op-test` tries it with.
    """
    _check_names("operator", names)
    if callable(schedule):
        _where(schedule)
        kind = own_schedules.named(schedule)
    elif schedule in SCHEDULES:
        kind = schedule
    else:
        rule = f"schedule {schedule!r} is none of {', '.join(SCHEDULES)}" if schedule else "it needs a schedule"
        raise refusals.declared_badly(
            ", ".join(names), rule, 'for example @operator("my::Name", schedule="elementwise")'
        )

    def declare(function: Function) -> Function:
        _where(function)
        _declare(names, function, Signature.of(function), kind, sweep)
        return function

    return declare


def composition(*names: str, sweep: Mapping[str, Any] | None = None) -> Callable[[Function], Function]:
    """Declare a function of a Graph and Values as the operator(s) ``names``."""
    _check_names("composition", names)

    def declare(function: Function) -> Function:
        _where(function)
        _declare(names, function, Signature.of(function, leading=1), None, sweep)
        return function

    return declare


def find(domain: str, op_type: str) -> Declared | None:
    """The operator that ONNX calls ``op_type`` in ``domain``; installed packages are asked for what nobody knows."""
    load_builtins()
    key = ("" if domain in _STANDARD else domain, op_type)
    if key not in _DECLARED and key[0]:
        load_installed()
    return _DECLARED.get(key)


def find_called(name: str) -> Declared:
    """The operator that a composition calls ``name``; raises when there is none."""
    found = find(*_split(name))
    if found is None:
        raise refusals.unknown_operator(name)
    return found


def all_operators() -> tuple[Declared, ...]:
    """All that are declared, by domain and name."""
    load_builtins()
    load_installed()
    return tuple(_DECLARED[key] for key in sorted(_DECLARED))


@functools.cache
def load_builtins() -> None:
    """Import every module of this package: importing one declares its operators."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")


def load_installed() -> None:
    """See :func:`compiler.operators.loading.load_entry_points`."""
    from compiler.operators.loading import load_entry_points

    load_entry_points()


def declared() -> tuple[Declared, ...]:
    """All that are declared by now; nothing is loaded for it."""
    return tuple(_DECLARED.values())


def restore(known: Iterable[Declared]) -> None:
    """Make these, and no others, the ones that are declared."""
    _DECLARED.clear()
    _DECLARED.update({(one.domain, one.name): one for one in known})


def forget(which: Callable[[Declared], bool]) -> None:
    """Their names are free again."""
    restore([one for one in declared() if not which(one)])


_DECLARED: dict[tuple[str, str], Declared] = {}


def _declare(
    names: tuple[str, ...],
    function: Callable[..., Any],
    signature: Signature,
    schedule: str | None,
    sweep: Mapping[str, Any] | None,
) -> None:
    for full in names:
        domain, name = _split(full)
        known = _DECLARED.get((domain, name))
        if known is not None and _where(known.function) != _where(function):
            raise refusals.declared_twice(full, _where(known.function), _where(function))
        _DECLARED[domain, name] = Declared(domain, name, function, signature, schedule, sweep)


def _check_names(decorator: str, names: tuple[Any, ...]) -> None:
    hint = f'for example @{decorator}("my::Name", ...)'
    if len(names) == 1 and callable(names[0]):
        raise refusals.declared_badly(_where(names[0]), f"@{decorator} is called with the operator's name", hint)
    if not names:
        raise refusals.declared_badly(f"@{decorator}", "an operator needs a name", hint)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise refusals.declared_badly(f"@{decorator}", f"{name!r} is no name of an operator", hint)


def _split(full_name: str) -> tuple[str, str]:
    domain, _, name = full_name.rpartition("::")
    return ("" if domain in _STANDARD else domain), name


def _where(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        raise refusals.declared_badly(repr(function), "an operator is a plain function, written with def or lambda")
    return f"{code.co_filename}:{code.co_firstlineno}"


def _plain(value: Any) -> Any:
    """A value in JSON's types; an array of many elements is named by its digest."""
    if isinstance(value, np.ndarray):
        if value.size > _MAX_SPELLED_ELEMENTS:
            elements: Any = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        else:
            elements = [_plain(element) for element in value.reshape(-1).tolist()]
        return {"dtype": value.dtype.name, "shape": list(value.shape), "elements": elements}
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
