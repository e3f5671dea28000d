"""Operands that are whole matrices in the layouts of :mod:`compiler.isa.layout`, shaped by other operands' names."""

from __future__ import annotations

from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.model import Args, Tensor
from compiler.isa.timing import ceil_div


def nd(name: str, role: str, memory: str, rows: str, cols: str, stride: str, dtype: str = "@dtype") -> Tensor:
    return Tensor(
        name,
        role,
        memory,
        dtype,
        extents=lambda args: (getattr(args, rows), getattr(args, cols)),
        strides=lambda args: (getattr(args, stride), 1),
    )


def nz(name: str, role: str, memory: str, rows: str, cols: str, pitch: str, dtype: str = "@dtype") -> Tensor:
    def extents(args: Args) -> tuple[int, ...]:
        k0 = args.dtype_of(dtype).fractal_k
        return (ceil_div(getattr(args, cols), k0), getattr(args, rows), k0)

    def strides(args: Args) -> tuple[int, ...]:
        k0 = args.dtype_of(dtype).fractal_k
        return (getattr(args, pitch) * k0, k0, 1)

    return Tensor(name, role, memory, dtype, extents, strides)


def _batch(args: Args, batched: bool) -> tuple[int, ...]:
    return (args.batch,) if batched else ()


def l0a(name: str, role: str, batched: bool = False) -> Tensor:
    def extents(args: Args) -> tuple[int, ...]:
        k0 = args.dtype_of("@dtype").fractal_k
        return (*_batch(args, batched), ceil_div(args.m, FRACTAL), ceil_div(args.k, k0), FRACTAL, k0)

    return Tensor(name, role, "l0a", "@dtype", extents, "dense")


def l0b(name: str, role: str, batched: bool = False) -> Tensor:
    def extents(args: Args) -> tuple[int, ...]:
        k0 = args.dtype_of("@dtype").fractal_k
        return (*_batch(args, batched), ceil_div(args.k, k0), ceil_div(args.n, FRACTAL), FRACTAL, k0)

    return Tensor(name, role, "l0b", "@dtype", extents, "dense")


def l0c(name: str, role: str, dtype: str = "@accumulator", batched: bool = False) -> Tensor:
    """All of a result: m x n and the zeros around it."""

    def extents(args: Args) -> tuple[int, ...]:
        return (*_batch(args, batched), ceil_div(args.n, FRACTAL), ceil_to(args.m, FRACTAL), FRACTAL)

    return Tensor(name, role, "l0c", dtype, extents, "dense")


def l0c_block(name: str, pitch: str, dtype: str) -> Tensor:
    """m rows of an L0C result whose column blocks are ``pitch`` rows apart."""

    def extents(args: Args) -> tuple[int, ...]:
        return (ceil_div(args.n, FRACTAL), args.m, FRACTAL)

    return Tensor(name, "r", "l0c", dtype, extents, lambda args: (getattr(args, pitch) * FRACTAL, FRACTAL, 1))
