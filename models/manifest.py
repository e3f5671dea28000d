"""What the zoo knows about a model: how it is built, what it is fed, and what is expected of it when it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

Architecture: TypeAlias = Callable[..., Mapping[str, str]]
"""``architecture(graph, *inputs, **options)`` adds its nodes to ``graph`` and returns {output name: value}."""


class Draw(Protocol):
    """How the values of an input are drawn, and of which type they are."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray: ...


@dataclass(frozen=True)
class Input:
    """An input of a model: the shape it is compiled and run for, and which axes the ONNX file leaves open."""

    name: str
    shape: tuple[int, ...]
    draw: Draw
    symbols: Mapping[int, str] = field(default_factory=dict)  # axis -> name of its symbolic size

    @property
    def declared(self) -> tuple[int | str, ...]:
        """The shape as the ONNX file has it: 1 x 3 x 64 x 64, or batch x 3 x 64 x 64."""
        return tuple(self.symbols.get(axis, size) for axis, size in enumerate(self.shape))


@dataclass(frozen=True)
class Tolerance:
    """How far a compiled model's outputs may be from onnxruntime's.

    In fp32 every element is within ``atol + rtol * |expected|`` and integers are equal. In fp16 the cosine of every
    floating-point output with the expected one is at least ``cosine``, and it is no further from it than one of the
    same length with that cosine is; of the rows of an integer output (what a
    detector selected) at least the share ``overlap`` is common to both, since near ties may fall the other way.
    """

    rtol: float = 1e-3
    atol: float = 1e-4
    cosine: float = 0.999
    overlap: float = 0.9
    elements: bool = True  # in fp32, too, only the direction counts where this is not set


@dataclass(frozen=True)
class HostKernel:
    """An operator that is expected to run on the host, and why."""

    operator: str
    reason: str


@dataclass(frozen=True)
class ExpectedFailure:
    """Cases that are known to fail: at which stage and with what in the message. One that passes is a fault, too."""

    stage: str  # import, compile, run or match
    message: str
    reason: str
    chips: tuple[str, ...] = ()  # all, if none is named
    precisions: tuple[str, ...] = ()

    def covers(self, chip: str, precision: str) -> bool:
        return (not self.chips or chip in self.chips) and (not self.precisions or precision in self.precisions)


@dataclass(frozen=True)
class Model:
    """One configuration of an architecture: one line of the zoo."""

    name: str
    architecture: Architecture
    source: str  # the paper or program the architecture comes from, and what is smaller here
    inputs: tuple[Input, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    chips: tuple[str, ...] = ("tw1", "tw2")
    precisions: tuple[str, ...] = ("fp32", "fp16")
    tolerance: Tolerance = Tolerance()
    host_kernels: tuple[HostKernel, ...] = ()
    expected_failures: tuple[ExpectedFailure, ...] = ()
    quantised: str = ""  # int8 or uint8: what convolutions and products read, in pairs of nodes around them
    tier: str = "full"  # or smoke: small enough for every run of the tests
    measured: bool = False  # is it one of those by which `make performance` states how good compiled programs are?
    held_out: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None  # of a trained model: its test data, labels
