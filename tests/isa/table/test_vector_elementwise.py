"""Element-by-element vector rows against formulas in double and in unbounded integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from compiler.isa.model import Row
from tests.isa.table.vector_bench import Oracle, check, f32, limits, vector_rows


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(a: Any) -> Any:
    return a * (1 + _erf(a / math.sqrt(2))) / 2


def _is_float(p: Any) -> bool:
    return bool(p.dtype in ("fp16", "bf16", "fp32"))


def _width(p: Any) -> int:
    return int(p.dtype_of("@dtype").itemsize) * 8


def _bits(p: Any, a: Any) -> Any:
    """The unsigned number that has the bits of a."""
    return a & (2 ** _width(p) - 1)


def _wrap(p: Any, value: Any) -> Any:
    return value if _is_float(p) else np.asarray(value, np.int64).astype(p.dtype_of("@dtype").numpy).astype(np.int64)


def _scalar(p: Any) -> Any:
    return _wrap(p, p.scalar)


def _saturate(dtype: str, value: Any) -> Any:
    return np.clip(value, *limits(dtype))


def _div(p: Any, a: Any, b: Any) -> Any:
    if _is_float(p):
        return a / b
    return np.vectorize(lambda x, y: 0 if y == 0 else int(math.copysign(abs(x) // abs(y), x * y)))(a, b)


def _mod(p: Any, a: Any, b: Any) -> Any:
    return np.mod(a, b) if _is_float(p) else np.where(b == 0, 0, a - np.floor_divide(a, np.where(b == 0, 1, b)) * b)


def _fmod(p: Any, a: Any, b: Any) -> Any:
    return np.fmod(a, b) if _is_float(p) else np.where(b == 0, 0, np.sign(a) * (abs(a) % np.where(b == 0, 1, abs(b))))


def _shift_left(p: Any, a: Any, b: Any) -> Any:
    return np.where((b < 0) | (b >= _width(p)), 0, a << np.clip(b, 0, 31))


def _shift_right(p: Any, a: Any, b: Any) -> Any:
    return a >> np.where((b < 0) | (b >= _width(p)), 63, b)


UNARY: dict[str, Oracle] = {
    "vabs": lambda p, a: abs(a),
    "vneg": lambda p, a: -a,
    "vsign": lambda p, a: np.where(a > 0, 1, np.where(a < 0, -1, 0)),
    "vsquare": lambda p, a: a**2,
    "vrelu": lambda p, a: np.where(a > 0, a, 0),
    "vrelu6": lambda p, a: np.where(a > 6, 6, np.where(a > 0, a, 0)),
    "vexp": lambda p, a: np.exp(a),
    "vexp2": lambda p, a: 2.0**a,
    "vexpm1": lambda p, a: np.expm1(a),
    "vln": lambda p, a: np.log(a),
    "vlog2": lambda p, a: np.log(a) / math.log(2),
    "vlog10": lambda p, a: np.log(a) / math.log(10),
    "vlog1p": lambda p, a: np.log1p(a),
    "vsqrt": lambda p, a: np.sqrt(a),
    "vrsqrt": lambda p, a: np.where(a < 0, np.nan, abs(a) ** -0.5),
    "vrec": lambda p, a: a**-1.0,
    "vcbrt": lambda p, a: np.sign(a) * abs(a) ** (1 / 3),
    "vsin": lambda p, a: np.sin(a),
    "vcos": lambda p, a: np.cos(a),
    "vtan": lambda p, a: np.sin(a) / np.cos(a),
    "vasin": lambda p, a: np.arcsin(a),
    "vacos": lambda p, a: np.arccos(a),
    "vatan": lambda p, a: np.arctan(a),
    "vsinh": lambda p, a: (np.exp(a) - np.exp(-a)) / 2,
    "vcosh": lambda p, a: (np.exp(a) + np.exp(-a)) / 2,
    "vtanh": lambda p, a: 1 - 2 / (np.exp(2 * a) + 1),
    "vasinh": lambda p, a: np.arcsinh(a),
    "vacosh": lambda p, a: np.log(a + np.sqrt(a - 1) * np.sqrt(a + 1)),
    "vatanh": lambda p, a: np.log((1 + a) / (1 - a)) / 2,
    "vsigmoid": lambda p, a: _sigmoid(a),
    "vsilu": lambda p, a: a * _sigmoid(a),
    "verf": lambda p, a: _erf(a),
    "vgelu": lambda p, a: _gelu(a),
    "vgelutanh": lambda p, a: a / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))),
    "vsoftplus": lambda p, a: np.log(1 + np.exp(a)),
    "vsoftsign": lambda p, a: a / (1 + abs(a)),
    "vlogsigmoid": lambda p, a: np.log(_sigmoid(a)),
    "vmish": lambda p, a: a * np.tanh(np.log(1 + np.exp(a))),
    "vhardswish": lambda p, a: a * np.clip(a / 6 + 0.5, 0, 1),
    "vfloor": lambda p, a: np.floor(a),
    "vceil": lambda p, a: -np.floor(-a),
    "vround": lambda p, a: np.vectorize(round, otypes=[np.float64])(a),
    "vtrunc": lambda p, a: np.sign(a) * np.floor(abs(a)),
    "vnot": lambda p, a: -a - 1,
    "vpopcnt": lambda p, a: np.vectorize(lambda x: x.bit_count())(_bits(p, a).astype(object)),
    "vclz": lambda p, a: _width(p) - np.vectorize(lambda x: x.bit_length())(_bits(p, a).astype(object)),
    "visnan": lambda p, a: a != a,
    "visinf": lambda p, a: abs(a) == np.inf,
    "visfinite": lambda p, a: abs(a) < np.inf,
    "vlnot": lambda p, a: a == 0,
}
BINARY: dict[str, Oracle] = {
    "vadd": lambda p, a, b: a + b,
    "vsub": lambda p, a, b: a - b,
    "vmul": lambda p, a, b: a * b,
    "vdiv": _div,
    "vmax": lambda p, a, b: np.where(a > b, a, b),
    "vmin": lambda p, a, b: np.where(a < b, a, b),
    "vfmax": lambda p, a, b: np.where(a > b, a, b),
    "vfmin": lambda p, a, b: np.where(a < b, a, b),
    "vmod": _mod,
    "vfmod": _fmod,
    "vpow": lambda p, a, b: np.power(a, b),
    "vatan2": lambda p, a, b: np.angle(b + 1j * a),
    "vhypot": lambda p, a, b: np.sqrt(a**2 + b**2),
    "vcopysign": lambda p, a, b: np.where(np.signbit(b), -abs(a), abs(a)),
    "vabsdiff": lambda p, a, b: abs(a - b),
    "vsqdiff": lambda p, a, b: _wrap(p, a - b) ** 2,
    "vaddrelu": lambda p, a, b: np.maximum(_wrap(p, a + b), 0),
    "vsubrelu": lambda p, a, b: np.maximum(_wrap(p, a - b), 0),
    "vmulrelu": lambda p, a, b: np.maximum(_wrap(p, a * b), 0),
    "vprelu": lambda p, a, b: np.where(a > 0, a, a * b),
    "vexpsub": lambda p, a, b: np.exp(a - b),
    "vsilumul": lambda p, a, b: a * _sigmoid(a) * b,
    "vgelumul": lambda p, a, b: _gelu(a) * b,
    "vand": lambda p, a, b: a & b,
    "vor": lambda p, a, b: a | b,
    "vxor": lambda p, a, b: a ^ b,
    "vandn": lambda p, a, b: a & ~b,
    "vshl": _shift_left,
    "vshr": _shift_right,
    "vaddsat": lambda p, a, b: _saturate(p.dtype, a + b),
    "vsubsat": lambda p, a, b: _saturate(p.dtype, a - b),
    "vmulhi": lambda p, a, b: np.floor_divide(a * b, 2 ** _width(p)),
    "vavg": lambda p, a, b: np.floor_divide(a + b + 1, 2),
}
SCALAR: dict[str, Oracle] = {
    "vadds": lambda p, a: a + p.scalar,
    "vsubs": lambda p, a: a - p.scalar,
    "vrsubs": lambda p, a: p.scalar - a,
    "vmuls": lambda p, a: a * p.scalar,
    "vdivs": lambda p, a: a / p.scalar,
    "vrdivs": lambda p, a: p.scalar / a,
    "vmaxs": lambda p, a: np.where(a > p.scalar, a, p.scalar),
    "vmins": lambda p, a: np.where(a < p.scalar, a, p.scalar),
    "vclamps": lambda p, a: np.clip(a, p.low, p.high),
    "vpows": lambda p, a: np.power(a, p.scalar),
    "vrpows": lambda p, a: np.power(p.scalar, a),
    "vmods": lambda p, a: a - np.floor(a / p.scalar) * p.scalar,
    "vfmods": lambda p, a: np.fmod(a, p.scalar),
    "vexpsubs": lambda p, a: np.exp(a - p.scalar),
    "vmadds": lambda p, a: a * p.scale + p.offset,
    "vaddmuls": lambda p, a: (a + p.offset) * p.scale,
    "vaxpy": lambda p, dst, a: dst + p.scalar * a,
    "vaxpby": lambda p, a, b: p.scale_a * a + p.scale_b * b,
    "vaddsc": lambda p, a, b: a + p.scalar + b,
    "vsubsc": lambda p, a, b: a - p.scalar + b,
    "vaddsrelu": lambda p, a: np.maximum(a + p.scalar, 0),
    "vlrelu": lambda p, a: np.where(a > 0, a, p.scalar * a),
    "velu": lambda p, a: np.where(a > 0, a, p.scalar * (np.exp(a) - 1)),
    "vhardsigmoid": lambda p, a: np.clip(p.scale * a + p.offset, 0, 1),
    "vthreshold": lambda p, a: np.where(a > p.scalar, a, p.other),
    "vshrink": lambda p, a: np.where(a < -p.scalar, a + p.bias, np.where(a > p.scalar, a - p.bias, 0)),
    "vswishs": lambda p, a: a * _sigmoid(p.scalar * a),
    "vaddi": lambda p, a: a + p.scalar,
    "vrsubi": lambda p, a: p.scalar - a,
    "vmuli": lambda p, a: a * p.scalar,
    "vdivi": lambda p, a: _div(p, a, _scalar(p)),
    "vmodi": lambda p, a: _mod(p, a, _scalar(p)),
    "vmaxi": lambda p, a: np.where(a > _scalar(p), a, _scalar(p)),
    "vmini": lambda p, a: np.where(a < _scalar(p), a, _scalar(p)),
    "vclampi": lambda p, a: np.minimum(np.maximum(a, _wrap(p, p.low)), _wrap(p, p.high)),
    "vandi": lambda p, a: a & p.scalar,
    "vori": lambda p, a: a | p.scalar,
    "vxori": lambda p, a: a ^ p.scalar,
    "vshli": lambda p, a: _shift_left(p, a, _scalar(p)),
    "vshri": lambda p, a: _shift_right(p, a, _scalar(p)),
    "vaddsati": lambda p, a: _saturate(p.dtype, a + _scalar(p)),
    "vmadi": lambda p, a: a * p.scale + p.offset,
}


def _quantised(p: Any, a: Any, scale: Any, zero_point: Any) -> Any:
    return _saturate(p.to, np.rint(f32(a) / f32(scale)) + zero_point)


FUSED: dict[str, Oracle] = {
    "vmla": lambda p, dst, a, b: dst + a * b,
    "vmls": lambda p, dst, a, b: dst - a * b,
    "vmadd": lambda p, dst, a, b: dst * a + b,
    "vmaddrelu": lambda p, dst, a, b: np.maximum(dst * a + b, 0),
    "vadd3": lambda p, a, b, c: a + b + c,
    "vsubadd": lambda p, a, b, c: a - b + c,
    "vmuladd": lambda p, a, b, c: a * b + c,
    "vmulsub": lambda p, a, b, c: a * b - c,
    "vaddmul": lambda p, a, b, c: (a + b) * c,
    "vsubmul": lambda p, a, b, c: (a - b) * c,
    "vlerp": lambda p, a, b, c: (1 - c) * a + c * b,
    "vclamp": lambda p, a, b, c: np.minimum(np.maximum(a, b), c),
    "vaddcast": lambda p, a, b: a + b,
    "vmulcast": lambda p, a, b: a * b,
    "vaddrelucast": lambda p, a, b: np.maximum(a + b, 0),
    "vsubrelucast": lambda p, a, b: np.maximum(a - b, 0),
    "vmulscast": lambda p, a: a * p.scale,
    "vquant": lambda p, a: _quantised(p, a, p.scale, p.zero_point),
    "vquantt": _quantised,
    "vdequant": lambda p, a: (a - p.zero_point) * p.scale,
    "vdequantt": lambda p, a, scale, zero_point: (a - zero_point) * scale,
    "vrequant": lambda p, a: _saturate(p.to, np.rint(f32(a) * f32(p.scale)).astype(np.float64) + p.zero_point),
    "vadddeqrelu": lambda p, a, b: np.maximum((a + b) * p.scale, 0),
}
COMPARE: dict[str, Oracle] = {
    "vcmpeq": lambda p, a, b: a == b,
    "vcmpne": lambda p, a, b: a != b,
    "vcmplt": lambda p, a, b: a < b,
    "vcmple": lambda p, a, b: a <= b,
    "vcmpgt": lambda p, a, b: a > b,
    "vcmpge": lambda p, a, b: a >= b,
    "vcmpseq": lambda p, a: a == p.scalar,
    "vcmpsne": lambda p, a: a != p.scalar,
    "vcmpslt": lambda p, a: a < p.scalar,
    "vcmpsle": lambda p, a: a <= p.scalar,
    "vcmpsgt": lambda p, a: a > p.scalar,
    "vcmpsge": lambda p, a: a >= p.scalar,
    "vcmpieq": lambda p, a: a == p.scalar,
    "vcmpine": lambda p, a: a != p.scalar,
    "vcmpilt": lambda p, a: a < p.scalar,
    "vcmpile": lambda p, a: a <= p.scalar,
    "vcmpigt": lambda p, a: a > p.scalar,
    "vcmpige": lambda p, a: a >= p.scalar,
    "vcmpsin": lambda p, a: ~((a < p.low) | (a > p.high)),
    "vcmpiin": lambda p, a: ~((a < p.low) | (a > p.high)),
    "vsel": lambda p, mask, a, b: np.where(mask, a, b),
    "vsels": lambda p, mask, a: np.where(mask, a, p.scalar),
    "vseli": lambda p, mask, a: np.where(mask, a, p.scalar),
    "vmaskmov": lambda p, dst, mask, a: np.where(mask, a, dst),
}
ORACLES = UNARY | BINARY | SCALAR | FUSED | COMPARE
ROWS = vector_rows("vector_unary", "vector_binary", "vector_scalar", "vector_fused", "vector_compare")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mnemonic)
def test_results_equal_the_formula(row: Row) -> None:
    check(row, ORACLES[row.mnemonic])


@pytest.mark.parametrize("scalar", [-1, 0, 7, 31, 300, -70000])
@pytest.mark.parametrize("mnemonic", [name for name in SCALAR if name.endswith("i")])
def test_integer_scalars_count_by_their_low_bits(mnemonic: str, scalar: int) -> None:
    row = next(row for row in ROWS if row.mnemonic == mnemonic)
    if "scalar" in {slot.name for slot in row.slots(("int8", "1d"))}:
        check(row, ORACLES[mnemonic], chosen={"scalar": scalar})


@pytest.mark.parametrize("scalar", [-1, 300, -70000])
@pytest.mark.parametrize("mnemonic", [name for name in COMPARE if name.startswith("vcmpi") and name != "vcmpiin"])
def test_integer_scalars_are_compared_as_they_are(mnemonic: str, scalar: int) -> None:
    row = next(row for row in ROWS if row.mnemonic == mnemonic)
    check(row, ORACLES[mnemonic], chosen={"scalar": scalar})


def _one_place_too_far(p: Any, a: Any, b: Any) -> Any:
    return np.roll(a + b, 1, -1)


@pytest.mark.parametrize("wrong", [lambda p, a, b: a - b, lambda p, a, b: (a + b) * 1.01, _one_place_too_far])
def test_the_check_can_fail(wrong: Oracle) -> None:
    with pytest.raises(AssertionError):
        check(next(row for row in ROWS if row.mnemonic == "vadd"), wrong)
