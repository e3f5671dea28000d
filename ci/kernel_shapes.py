"""Kernels of single operators to measure the compiler by: chosen ones, and any number from a seeded generator.

What is learned from and what it is judged by have no kernel in common: a kernel's name decides which it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from random import Random
from zlib import crc32

from tvm import te, tirx, topi

from compiler.isa.dtypes import DTYPES
from compiler.kernel_pool import Job
from compiler.operators.convolution import channel_block, convolution
from compiler.operators.matmul import uncast_product
from compiler.target import Chip
from compiler.tir.near import near_parameters, placed_near
from compiler.tir.scopes import ISA_DTYPE

Shape = tuple[int, ...]


def product(m: int, n: int, k: int, dtype: str = "float16", batch: int = 0, relu: bool = False) -> Job:
    lead = (batch,) if batch else ()
    a, b = te.placeholder((*lead, m, k), dtype, "a"), te.placeholder((*lead, k, n), dtype, "b")
    result = uncast_product(a, b, transpose_a=False, transpose_b=False)
    if relu:
        result = te.compute(result.shape, lambda *i: te.max(result(*i), tirx.const(0, result.dtype)), "relu")
    label = f"{batch}x" if batch else ""
    return Job(te.create_prim_func([a, b, result]), "matmul", f"product {label}{m}x{n}x{k} {dtype}{' relu' * relu}")


def convolved(
    channels: int, outputs: int, size: tuple[int, int], kernel: int, stride: int = 1, dtype: str = "float16"
) -> Job:
    block = channel_block(dtype)
    x = te.placeholder((1, channels, *size), dtype, "x")
    w = te.placeholder((1, 1, -(-channels // block), kernel, kernel, outputs, block), dtype, "w")
    around, strides, size_of = (kernel // 2,) * 4, (stride, stride), {"channels": channels, "outputs": outputs}
    result = convolution(x, w, kernel=(kernel, kernel), strides=strides, pads=around, dilations=(1, 1), **size_of)
    name = f"convolution {channels}->{outputs} {size[0]}x{size[1]} kernel {kernel} stride {stride} {dtype}"
    return Job(te.create_prim_func([x, w, result]), "convolution", name)


def elementwise(shape: Shape, dtype: str = "float32", inputs: int = 2) -> Job:
    given = [te.placeholder(shape, dtype, f"x{i}") for i in range(inputs)]

    def value(*i: tirx.Var) -> tirx.PrimExpr:
        total = given[0](*i)
        for other in given[1:]:
            total = total + other(*i)
        return te.max(total, tirx.const(0, dtype))

    result = te.compute(shape, value, "result")
    return Job(te.create_prim_func([*given, result]), "elementwise", f"sum of {inputs} {shape} {dtype}")


def exponential(shape: Shape) -> Job:
    x = te.placeholder(shape, "float32", "x")
    result = te.compute(shape, lambda *i: te.exp(x(*i)) / (te.exp(x(*i)) + tirx.const(1.0, "float32")), "result")
    return Job(te.create_prim_func([x, result]), "elementwise", f"logistic {shape}")


def row_sum(shape: Shape) -> Job:
    x = te.placeholder(shape, "float32", "x")
    k = te.reduce_axis((0, shape[-1]), "k")
    result = te.compute(shape[:-1], lambda *i: te.sum(x(*i, k), k), "sum")
    return Job(te.create_prim_func([x, result]), "reduction", f"row sum {shape}")


def softmax(shape: Shape) -> Job:
    x = te.placeholder(shape, "float32", "x")
    return Job(te.create_prim_func([x, topi.nn.softmax(x, -1)]), "reduction", f"softmax {shape}")


def transposition(shape: Shape) -> Job:
    x = te.placeholder(shape, "float32", "x")
    result = te.compute(shape[::-1], lambda *i: x(*reversed(i)), "transposed")
    return Job(te.create_prim_func([x, result]), "movement", f"transposition {shape}")


def single_operators() -> Iterator[Job]:
    """One or two of each kind, large and ragged."""
    yield product(1024, 1024, 1024)
    yield product(1000, 1000, 777)
    yield product(512, 512, 2048, "int8")
    yield product(300, 200, 100, "float32", batch=6, relu=True)
    yield product(2048, 64, 4096)
    yield convolved(64, 64, (56, 56), 3)
    yield convolved(3, 64, (224, 224), 7, 2)
    yield convolved(200, 100, (29, 31), 1, dtype="int8")
    yield elementwise((4096, 1024))
    yield elementwise((17, 1021), "float16", 3)
    yield exponential((2048, 512))
    yield row_sum((4096, 1024))
    yield softmax((4096, 1024))
    yield softmax((1000, 333))
    yield transposition((1024, 768))


# ---- drawn ones --------------------------------------------------------------------------------------------------

SIZES = (16, 32, 48, 64, 96, 100, 128, 160, 192, 197, 256, 320, 384, 500, 512, 640, 768, 1000, 1024, 1536, 2048, 3072)
MOST_MACS, MOST_ELEMENTS = 4e9, 1 << 23
LARGE_SIZES = (1000, 1024, 1536, 2048, 3072, 4096, 5000, 6144)
LARGE_MACS = (4e9, 8e10)  # no less than so many, and no more
HELD_OUT = 4  # one of so many
IN_LLB = " in LLB"
NEAR_SHARE = 0.5  # of the kernels, those whose tensors lie in LLB
NEAR_ROOM = 2 << 20  # bytes of LLB that these may take for themselves
NEAR_BYTES = 5 << 20  # of tensors in LLB, at most: beside the room, that much fits on every chip


def is_held_out(name: str) -> bool:
    """The same wherever its tensors lie."""
    return crc32(name.removesuffix(IN_LLB).encode()) % HELD_OUT == 0


def drawn(count: int, *, held_out: bool, seed: int = 0) -> list[Job]:
    """Kernels of all kinds in turn, each once, that are learned from or that are held out."""
    random, found = Random(seed), dict[str, Job]()
    kinds = (_drawn_product, _drawn_convolution, _drawn_vector)
    while len(found) < count:
        job = kinds[len(found) % len(kinds)](random)
        if job is not None and is_held_out(job.name) == held_out:
            found.setdefault(job.name, _placed(job) if random.random() < NEAR_SHARE else job)
    return list(found.values())


def drawn_large(count: int, *, held_out: bool, seed: int = 0) -> list[Job]:
    """Large products, each once."""
    random, found = Random(seed), dict[str, Job]()
    while len(found) < count:
        m, n, k = (random.choice(LARGE_SIZES) for _ in range(3))
        if LARGE_MACS[0] <= m * n * k <= LARGE_MACS[1]:
            job = product(m, n, k, random.choice(("float16", "float16", "float32", "int8")))
            if is_held_out(job.name) == held_out:
                found.setdefault(job.name, job)
    return list(found.values())


def tensor_bytes(params: Iterable[tirx.Buffer]) -> int:
    return sum(prod(int(n) for n in param.shape) * DTYPES[ISA_DTYPE[str(param.dtype)]].itemsize for param in params)


def _placed(job: Job) -> Job:
    """The same where its tensors lie in LLB, but for weights; what does not fit there stays where it is."""
    far = {1} if job.schedule in ("matmul", "convolution") else set[int]()
    near = [index for index in range(len(job.func.params)) if index not in far]
    if tensor_bytes(job.func.params[index] for index in near) > NEAR_BYTES:
        return job
    return replace(job, func=placed_near(job.func, near, NEAR_ROOM), name=job.name + IN_LLB)


def machine_of(job: Job, chip: Chip) -> Chip:
    """What a kernel runs on: tensors in LLB are those of one cluster."""
    return chip.one_cluster() if near_parameters(job.func) else chip


def _drawn_product(random: Random) -> Job | None:
    m, n, k = (random.choice(SIZES) for _ in range(3))
    batch = random.choice((0, 0, 0, 4, 12))
    if m * n * k * max(1, batch) > MOST_MACS:
        return None
    return product(m, n, k, random.choice(("float16", "float16", "float32", "int8")), batch, random.random() < 0.3)


def _drawn_convolution(random: Random) -> Job | None:
    channels, outputs = (
        random.choice((3, 16, 32, 64, 96, 128, 256, 512)),
        random.choice((16, 24, 64, 96, 128, 256, 512)),
    )
    size, kernel = random.choice((7, 14, 28, 30, 56, 64, 112)), random.choice((1, 3, 3, 3, 5, 7))
    if channels * outputs * (size * kernel) ** 2 > MOST_MACS or kernel > size:
        return None
    dtype = random.choice(("float16", "float16", "int8"))
    return convolved(channels, outputs, (size, size), kernel, random.choice((1, 1, 2)), dtype)


def _drawn_vector(random: Random) -> Job | None:
    rows, columns = random.choice((*SIZES, 4096)), random.choice((*SIZES, 4096))
    if rows * columns > MOST_ELEMENTS:
        return None
    kind = random.choice((elementwise, exponential, row_sum, softmax, transposition))
    return kind((rows, columns))
