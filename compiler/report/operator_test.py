"""Declared operators against their own TE: each case compiled for a chip, run, and compared with TVM's CPU code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.driver import compile_model
from compiler.errors import HazardError, InvalidError, TilewrightError, UnsupportedError
from compiler.frontend import Imported, import_model
from compiler.operators import Declared, TensorType
from compiler.operators.sweep import Array, Case, Given, cases
from compiler.options import Options
from compiler.report.comparison import Tolerance, compare
from compiler.report.compilation import report_of
from compiler.runtime.loaded import load
from compiler.single_operator import model_of
from compiler.target import Chip

TOLERANCE = Tolerance(1e-3, 1e-4)
# Of 16 bits, roundings between stages differ: TVM's code keeps no more of them than the chip does.
HALF = Tolerance(2e-2, 1e-2, cosine=0.999)
OK, DIFFERENT, HAZARD, HOST, REFUSED, ERROR = "ok", "different", "hazard", "host", "refused", "error"


@dataclass(frozen=True)
class Outcome:
    """One case on one chip. ``refused``: the operator's own function does not take these shapes."""

    operator: str
    chip: str
    case: str
    inputs: str
    attributes: Mapping[str, Any]
    verdict: str
    detail: str = ""
    cycles: int = 0
    exit_code: int = 0


def sweep(
    operators: Sequence[Declared], chips: Sequence[Chip], *, quick: bool = False, seed: int = 0
) -> Iterator[Outcome]:
    """All cases of all operators, chip by chip."""
    for declared in operators:
        for chip in chips:
            for case in cases(declared, chip.memory.ub_bytes, quick=quick):
                yield _outcome(declared, chip, case, seed)


def _outcome(declared: Declared, chip: Chip, case: Case, seed: int) -> Outcome:
    inputs = ", ".join(f"{name} {_text(one)}" for name, one in case.inputs.items())
    verdict, detail, cycles, code = _tried(declared, chip, case, seed)
    return Outcome(declared.full_name, chip.name, case.name, inputs, case.attributes, verdict, detail, cycles, code)


def _tried(declared: Declared, chip: Chip, case: Case, seed: int) -> tuple[str, str, int, int]:
    types = {name: _type(one) for name, one in case.inputs.items()}
    try:
        model = model_of(declared, types, case.attributes).SerializeToString(deterministic=True)
        imported = import_model(model)
    except (InvalidError, UnsupportedError) as error:
        return REFUSED, error.problems[0].message, 0, error.exit_code
    try:
        compilation = compile_model(model, chip, Options(jobs=1))
        loaded = load(compilation.model)
        arrays = _arrays(case, seed)
        actual = loaded.run({port.name: arrays[port.name] for port in loaded.inputs}, hazards=True)
    except HazardError as error:
        return HAZARD, error.problems[0].message, 0, error.exit_code
    except TilewrightError as error:
        return ERROR, f"{error.problems[0].code}: {error.problems[0].message}", 0, error.exit_code
    for name, expected in _expected(imported, arrays).items():
        half = expected.dtype.itemsize == 2 and expected.dtype.kind not in "iu"
        found = compare(name, expected, np.asarray(actual[name]), HALF if half or _has_halves(case) else TOLERANCE)
        if found.fault:
            return DIFFERENT, f"{name}: {found.fault}", 0, 11
    host = report_of(compilation).host_kernels
    if host:
        return HOST, host[0].reason, loaded.cycles, UnsupportedError.exit_code
    return OK, "", loaded.cycles, 0


def _expected(imported: Imported, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What TVM's own code for this machine makes of the same operator calls, one after another."""
    import tvm
    from tvm import relax

    machine: Any = relax.VirtualMachine(tvm.compile(imported.module, target="llvm"), tvm.cpu())
    given = [arrays[port.name] for port in imported.inputs] + list(imported.constants.values())
    result = machine["main"](*(tvm.runtime.tensor(np.array(array, order="C")) for array in given))
    results = [result] if len(imported.outputs) == 1 else list(result)
    return {port.name: one.numpy() for port, one in zip(imported.outputs, results, strict=True)}


def _type(one: TensorType | Array | Given) -> TensorType | Array:
    return TensorType(one.array.shape, one.array.dtype.name) if isinstance(one, Given) else one


def _arrays(case: Case, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: one.array if isinstance(one, Given) else _random(one, rng)
        for name, one in case.inputs.items()
        if not isinstance(one, np.ndarray)
    }


def _random(one: TensorType, rng: np.random.Generator) -> Array:
    if one.dtype == "bool":
        return rng.integers(0, 2, one.shape).astype(np.bool_)
    if "int" in one.dtype:
        return rng.integers(0 if one.dtype.startswith("u") else -8, 9, one.shape).astype(one.dtype)
    from compiler.frontend.types import numpy_dtype

    return rng.standard_normal(one.shape).astype(numpy_dtype(one.dtype))


def _has_halves(case: Case) -> bool:
    return any(isinstance(one, TensorType) and one.dtype in ("float16", "bfloat16") for one in case.inputs.values())


def _text(one: TensorType | Array | Given) -> str:
    dtype, shape = (one.array.dtype.name, one.array.shape) if isinstance(one, Given) else (str(one.dtype), one.shape)
    return f"{dtype}[{', '.join(map(str, shape))}]"
