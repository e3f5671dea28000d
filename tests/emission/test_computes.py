"""Every `computes` text of the table means what its row's semantics do, on random data of every type."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.emission.patterns import FOLDS, spellings
from compiler.isa.convert import to_fp32
from compiler.isa.dtypes import DTYPES, FLOATS, INTS
from compiler.isa.execute import store, widened
from compiler.isa.model import Float, Instr, Int, Row, Shape, Tensor, bind
from compiler.isa.table import rows
from compiler.target import load_chip

CHIP = load_chip("tiny")
SHAPE = (3, 32)
ROWS = [row for row in rows() if row.computes]
NAMED = {row.mnemonic: row for row in ROWS}

# Vector rows without a text, and why no expression over their operands can say what they do.
WITHOUT_TEXT = {
    "TIR has no such operation": "vcbrt vfmax vfmin vaddsat vsubsat vmulhi vavg vaddsati vavgpool",
    "the result is where an element is": "vrargmax vrargmin vrfirst vcargmax vcargmin",
    "one element depends on the one before": "vcumsum vcumprod vcummax vcummin",
    "data moves, and its strides say where to": (
        "vbrcb vrepeat vstretch vtrans vpermute vinterleave vdeinterleave vflip vrot vslide vtri vpad vpadi vpadedge"
    ),
    "data is an address": (
        "vgather vgatherlane vgatherrow vscatter vscatteradd vscattermax vscattermin vscatterrow vscatteraddrow "
        "vcompress vexpand vnonzero vonehot vlut vhist"
    ),
    "an order of elements": "vsort vsortpairs vsort32 vmrgsort2 vmrgsort4 vtopk",
    "windows": "vmaxpool vminpool vsumpool vdwconv vupsample vbilinear",
    "a pattern and a conversion make it": "vramp",
    "an element-wise row with strides of two does the same": "vpairsum vpairmax vpairmin",
    "random numbers": "vrand vrandi vrandn vdropout",
}


def test_rows_without_a_text_are_known() -> None:
    silent = {row.mnemonic for row in rows() if row.category.startswith("vector") and not row.computes}
    assert silent == {name for names in WITHOUT_TEXT.values() for name in names.split()}


# ---- the meaning of the texts, in numpy -------------------------------------------------------------------------


def _truncated_division(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    if np.issubdtype(np.result_type(a, b), np.integer):
        with np.errstate(all="ignore"):
            quotient = np.trunc(np.divide(a.astype(np.float64), b.astype(np.float64)))
        return np.where(b == 0, 0, np.nan_to_num(quotient)).astype(np.int64)
    return np.divide(a, b)


def _shift(function: Any) -> Any:
    def shifted(a: Any, b: Any) -> Any:
        return function(np.asarray(a, np.int64), np.clip(b, 0, 62))

    return shifted


_ERF = np.vectorize(math.erf)
_FUNCTIONS: dict[str, Any] = {
    "max": np.maximum,
    "min": np.minimum,
    "where": np.where,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "erf": _ERF,
    "pow": np.power,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _truncated_division,
    "mod": lambda a, b: np.where(np.asarray(b) == 0, 0, np.mod(a, np.where(np.asarray(b) == 0, 1, b))),
    "neg": np.negative,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}
_REDUCED = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "or": np.logical_or}
_REDUCED["and"] = np.logical_and


def _meaning(pattern: Any, values: dict[str, Any], to: str) -> Any:
    if pattern.op in ("tensor", "float", "int", "dimension"):
        return values[pattern.name]
    if pattern.op == "const":
        return pattern.value
    args = [_meaning(arg, values, to) for arg in pattern.args]
    if pattern.op == "cast":
        return _cast(args[0], to)
    if pattern.op == "saturate":
        limits = np.iinfo(DTYPES[to].numpy)
        return np.clip(args[0], limits.min, limits.max)
    if pattern.op == "fold":
        return _folded(pattern.value, args[0])
    if pattern.op == "popcount":
        return np.bitwise_count(args[0].view(f"u{args[0].dtype.itemsize}"))
    if pattern.op == "clz":
        width = 8 * args[0].dtype.itemsize
        return np.vectorize(lambda a: width - (int(a) & (2**width - 1)).bit_length())(args[0])
    return _FUNCTIONS[pattern.op](*args)


def _cast(a: Any, to: str) -> Any:
    """TIR's conversion: floats to integers toward zero, integers wrap, anything but zero is true."""
    if to == "bool":
        return a != 0
    if to in FLOATS:
        return np.asarray(a, np.float64)
    return np.trunc(a).astype(np.int64) if np.asarray(a).dtype.kind == "f" else np.asarray(a, np.int64)


def _folded(fold: tuple[str, str], a: Any) -> Any:
    op, axis = fold
    reduce = _REDUCED[op].reduce
    if axis == "n1":
        return reduce(a, axis=-2)
    if axis == "blocks":
        size = 32 // a.dtype.itemsize if a.dtype != np.float64 else values_block[0]
        return reduce(a.reshape(*a.shape[:-1], -1, size), axis=-1)
    return reduce(a, axis=-1)


values_block = [8]  # elements of a block of the type under test, whose floats are computed as float64 here


# ---- rows on random data ---------------------------------------------------------------------------------------


def _mods(row: Row) -> list[tuple[str, ...]]:
    """Every choice of types, with the least rank that has rows and columns."""
    choices = [("2d",) if m.name == "rank" else m.choices for m in row.modifiers]
    return list(product(*choices))


def _data(tensor: Tensor, dtype: str, rng: np.random.Generator, shape: tuple[int, ...], positive: bool) -> Any:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.uint8)
    if dtype in FLOATS:
        low = 0.05 if positive else -3
        array = rng.uniform(low, 0.95 if positive else 3, shape).astype(np.float32)
        return array.astype(DTYPES[dtype].numpy)
    if positive:
        return rng.integers(0, 7, shape).astype(DTYPES[dtype].numpy)
    limits = np.iinfo(DTYPES[dtype].numpy)
    return rng.integers(max(limits.min, -60), 61, shape).astype(DTYPES[dtype].numpy)


def _scalars(row: Row, rng: np.random.Generator, condition: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for operand in row.operands:
        if isinstance(operand, Float):
            found[operand.name] = float(np.float32(rng.uniform(0.2, 1.5)))
        elif isinstance(operand, Int):
            found[operand.name] = int(rng.integers(1, 6))
    if "low" in found:
        found["low"], found["high"] = sorted((found["low"], found["high"]))
    for part in condition.split(" and "):
        name, _, limit = part.partition(" <= ")
        if name in found and limit not in found and limit:
            found[name] = min(found[name], float(limit))
        name, _, value = part.partition(" == ")
        if name in found:
            found[name] = type(found[name])(value)
    return found


def _applies(row: Row, mods: tuple[str, ...], condition: str) -> bool:
    named = {m.name: c for m, c in zip(row.modifiers, mods, strict=True)}
    for part in filter(None, condition.split(" and ")):
        if part.startswith("round == ") and named["round"] != part.rpartition(" ")[2]:
            return False
        if part == "floats" and named["dtype"] not in FLOATS:
            return False
        if part == "widens" and DTYPES[named["to"]].itemsize <= DTYPES[named["src"]].itemsize:
            return False
        rounds = named.get("src") in FLOATS and named.get("to") in INTS
        if (part == "rounds" and not rounds) or (part == "not rounds" and rounds):
            return False
        if part == "not wraps" and _wraps(named["src"], named["to"]):
            return False
    return True


def _wraps(source: str, target: str) -> bool:
    if source not in INTS or target not in INTS:
        return False
    a, b = np.iinfo(DTYPES[source].numpy), np.iinfo(DTYPES[target].numpy)
    return bool(a.min < b.min or a.max > b.max)


def _bound(row: Row, mods: tuple[str, ...], scalars: dict[str, Any]) -> Any:
    values = []
    for slot in row.slots(mods):
        if slot.kind == "addr":
            values.append(0)
        elif slot.name in ("n1", "n0"):
            values.append(SHAPE[slot.name == "n0"])
        elif slot.name in scalars:
            value = scalars[slot.name]
            values.append(int(np.float32(value).view(np.int32)) if slot.kind == "float" else value)
        else:
            values.append(1)
    return bind(Instr(row, mods, tuple(values)), values, CHIP)


_DOMAIN_OF_ONE = ("vasin", "vacos", "vatanh", "vln", "vlog2", "vlog10", "vlog1p", "vsqrt", "vrsqrt", "vpow", "vpows")


@pytest.mark.parametrize("mnemonic", list(NAMED))
def test_text_means_what_the_row_does(mnemonic: str) -> None:
    row = NAMED[mnemonic]
    checked = 0
    for spelling in (one for one in spellings() if one.row is row):
        for mods in _mods(row):
            if _applies(row, mods, spelling.condition) and _agree(spelling, mods):
                checked += 1
    assert checked


def _agree(spelling: Any, mods: tuple[str, ...]) -> bool:
    row = spelling.row
    rng = np.random.default_rng(7)
    scalars = _scalars(row, rng, spelling.condition)
    args = _bound(row, mods, scalars)
    if not all(rule(args) for rule in row.rules if rule.__name__ in ("conversion_exists", "destination_is_narrower")):
        return False
    destination = row.tensors[0]
    to = args.dtype_of(destination.dtype).name
    positive = row.mnemonic in _DOMAIN_OF_ONE
    values: dict[str, Any] = dict(scalars)
    inputs = []
    for tensor, view in zip(row.tensors, args.views, strict=True):
        if "r" not in view.role:
            continue
        # Of a negative float as an unsigned integer, and of a shift by less than nothing, TIR says nothing.
        unsigned = DTYPES[to].numpy.kind == "u" or (row.mnemonic in ("vshl", "vshr") and tensor.name == "b")
        array = _data(tensor, view.dtype.name, rng, view.shape, positive or unsigned)
        if row.mnemonic == "vacosh":
            array = (np.abs(to_fp32(array) if array.dtype.itemsize == 2 else array) + 1.5).astype(array.dtype)
        inputs.append(array if row.raw else widened(array))
        values[tensor.name] = _as_value(array, view.dtype.name)
        values_block[0] = view.dtype.fractal_k
    if any(pattern_op in spelling.text for pattern_op in ("n1 *", "n0 *")):
        planes = np.ogrid[: SHAPE[0], : SHAPE[1]]
        values |= {"n2": 0, "n1": planes[0], "n0": planes[1]}
    if _type_of(spelling.pattern, row, args) != (to == "bool"):
        return False
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(_meaning(spelling.pattern, values, to), args.view(destination.name).shape)
        result = row.function(args, *inputs)
    actual = np.empty(args.view(destination.name).shape, DTYPES[to].numpy)
    store(actual, result)
    _compare(actual, expected, to, f"{row.mnemonic}.{'.'.join(mods)}: {spelling.text}")
    return True


def _as_value(array: Any, dtype: str) -> Any:
    if dtype == "bool":
        return array != 0
    return array.astype(np.float64) if dtype in FLOATS else array


def _type_of(pattern: Any, row: Row, args: Any) -> bool:
    """Whether a pattern's value is a truth value."""
    if pattern.op in ("eq", "ne", "lt", "le", "isnan", "isinf", "isfinite"):
        return True
    if pattern.op == "tensor":
        return bool(args.dtype_of(row.tensors[row.tensor_index[pattern.name]].dtype).name == "bool")
    if pattern.op in ("cast", "saturate"):
        return bool(args.dtype_of(row.tensors[0].dtype).name == "bool")
    if pattern.op in ("float", "int", "dimension", "const"):
        return bool(row.mnemonic == "vdupi" and args.dtype == "bool")
    inner = pattern.args[1:] if pattern.op == "where" else pattern.args
    return any(_type_of(arg, row, args) for arg in inner)


def _compare(actual: Any, expected: Any, to: str, what: str) -> None:
    if to in FLOATS:
        tolerance = {"fp32": 2e-5, "fp16": 2e-3, "bf16": 1.6e-2}[to]
        np.testing.assert_allclose(
            actual.astype(np.float64), np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance, err_msg=what
        )
    elif to == "bool":
        np.testing.assert_array_equal(actual != 0, np.asarray(expected) != 0, err_msg=what)
    else:
        wrapped = np.asarray(expected).astype(np.int64).astype(DTYPES[to].numpy)
        np.testing.assert_array_equal(actual, wrapped, err_msg=what)


def test_folds_are_the_reductions_of_terms() -> None:
    assert {op for op, _ in FOLDS.values()} == set(_REDUCED)
    assert ml_dtypes.bfloat16 == DTYPES["bf16"].numpy
    assert all(not isinstance(operand, Shape) or operand.names for row in ROWS for operand in row.operands)
