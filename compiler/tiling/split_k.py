"""Products whose k is long and whose result is small, as two kernels: parts of k, each a product, and their sum.

    c[m, n] = sum(a[m, k] * b[k, n])
    -> parts[p, m, n] = sum(a[m, p * K + k] * b[p * K + k, n])        c[m, n] = sum(parts[p, m, n]), and what follows

A core then reads its part of both operands, instead of all of k for a small piece of the result: what cores read
several times together is less, and all of them have work. The parts lie between the kernels like any other tensor.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt, prod
from typing import Any

from tvm import te, tirx

from compiler.codegen.residence import llb_pays
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.epilogue import NO_EPILOGUE
from compiler.tiling.in_parts import InParts, Part, function, mentions, stores
from compiler.tiling.masters import masters_of
from compiler.tiling.matmul_problem import Problem, problem_of
from compiler.tiling.matmul_tiles import candidates
from compiler.tiling.matmul_work import ddr_bytes_per_cycle, works_of
from compiler.tiling.ranking import predicted_cycles
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import works_in
from compiler.tir.structure import structural_map

SWITCH = "split-k"  # what ablations call it
LONG = 4  # times the side of a square of as many results, that k is at least
SHORTEST = 128  # k of a part
WORSE = 1.1  # of the cycles of the best count: what ends the search for one
NEAR, MOST = 1.03, 2  # of the cycles of the best count, what others may take to be tried, too, and how many are
SUM_BYTES = 4  # of an element of a part


def split(func: Any, schedule: str, chip: Chip) -> tuple[InParts, ...]:
    """The kernel of a product in two, where these are thought to take less time: compiled, they show whether they do.
    Each number of parts that is thought nearly as good as the best.

    1. The kernel is one product of matrices, and stages behind it.
    2. All parts are as long, in whole blocks of the cube.
    """
    if schedule != "matmul":
        return ()
    sch = schedule_of(func)
    masters = masters_of(sch)
    if len(masters) != 1 or len(masters[0].axes("k")) != 1:
        return ()
    problem = problem_of(sch, masters[0], chip)
    if prod(problem.batch) > 1:  # (1)
        return ()
    if problem.k < LONG * isqrt(problem.m * problem.n) or not chip.multiplies(problem.dtype):
        return ()
    return tuple(found for count in _counts(problem, chip) if (found := _in_parts(func, count)))


# ---- the choice --------------------------------------------------------------------------------------------------


def _counts(problem: Problem, chip: Chip) -> list[int]:
    """Of parts, the best first; none where one kernel is thought to be as good. More are no better once they are
    clearly worse."""
    limit, least = _product_cycles(problem, chip), _least_cycles(problem, chip)
    found = dict[int, float]()
    for count in range(2, chip.cores + 1):
        if problem.k % (count * problem.k0) or problem.k < count * SHORTEST:  # (2)
            continue
        if least + _sum_cycles(problem, count, chip) >= limit:
            break
        cycles = _cycles_in_parts(problem, count, chip)
        if cycles < limit:
            found[count] = cycles
        if found and cycles > min(found.values()) * WORSE:
            break
    best = min(found.values(), default=limit)
    return sorted((count for count in found if found[count] <= best * NEAR), key=found.__getitem__)[:MOST]


def _least_cycles(problem: Problem, chip: Chip) -> float:
    """Of any product: both operands come from DDR once."""
    return (problem.m + problem.n) * problem.k * problem.itemsize / ddr_bytes_per_cycle(chip)


def _cycles_in_parts(problem: Problem, count: int, chip: Chip) -> float:
    part = replace(
        problem, batch=(count,), batch_of=("",), k=problem.k // count, result_bytes=SUM_BYTES,
        slave_bytes=0 if cube.path(chip, "l0c", "ddr") else SUM_BYTES, epilogue=NO_EPILOGUE,
    )  # fmt: skip
    return _product_cycles(part, chip) + _sum_cycles(problem, count, chip)


def _product_cycles(problem: Problem, chip: Chip) -> float:
    tiles = candidates(problem, chip)
    return float(predicted_cycles(works_in(works_of(tiles, problem, chip)), chip).min()) if tiles else float("inf")


def _sum_cycles(problem: Problem, count: int, chip: Chip) -> float:
    """Of the second kernel: it waits for all cores of the first, reads the parts once, and stores their sum."""
    memory, rates = "llb" if llb_pays(chip) else "ddr", chip.bandwidth.llb_bytes_per_kilocycle / 1000
    rate = min(chip.cores * chip.path[f"{memory}_ub"].bytes_per_cycle, rates)
    if memory == "ddr":
        rate = ddr_bytes_per_cycle(chip)
    ends = chip.path[f"{memory}_ub"].latency_cycles + chip.path["ub_ddr"].latency_cycles
    return chip.sync.cross_flag_cycles + ends + count * problem.m * problem.n * SUM_BYTES / rate


# ---- the two kernels ---------------------------------------------------------------------------------------------


def _in_parts(func: Any, count: int) -> InParts | None:
    sch = schedule_of(func)
    (master,) = masters_of(sch)
    outer, _ = sch.split(sch.get_loops(master.block)[master.axes("k")[0]], [count, None])
    parts = sch.rfactor(outer, 0)
    *loops, part, inner = sch.get_loops(parts)
    sch.reorder(part, *loops, inner)  # as the axes of the block are
    between, product = sch.get(parts).writes[0].source, sch.get(master.block).writes[0].source
    root = sch.mod["main"].body.block
    first, _, *behind = root.body.seq
    if not mentions(first, between) or any(mentions(first, buffer) for buffer in _others(root, between)):
        return None
    rest = [_sum(between, product), *behind]
    of_parts = tuple(i for i, param in enumerate(func.params) if mentions(first, param))
    of_total = tuple(i for i, param in enumerate(func.params) if any(mentions(nest, param) for nest in rest))
    written = tuple(i for i in of_total if any(stores(nest, func.params[i]) for nest in rest))
    read = tuple(i for i in of_total if i not in written)
    params = [*func.params, between]
    first_of, second_of = (*of_parts, len(func.params)), (*read, len(func.params), *written)
    parts = function(func, [params[i] for i in first_of], [first], [])
    total = function(func, [params[i] for i in second_of], rest, _others(root, between))
    of = Part(parts, "matmul", first_of, "parts"), Part(total, "reduction", second_of, "their sum", "sum")
    return InParts((between,), of)


def _sum(between: Any, product: Any) -> Any:
    """The stage that sums the parts, as an operator would."""
    parts = te.placeholder([int(n) for n in between.shape], str(between.dtype), "parts")
    p = te.reduce_axis((0, int(between.shape[0])), "p")
    total = te.compute([int(n) for n in product.shape], lambda *i: te.sum(parts(p, *i), p), "sum_of_parts")
    func = te.create_prim_func([parts, total])
    buffers = dict(zip(func.params, (between, product), strict=True))
    return structural_map(func.body.block.body, (tirx.Var, lambda var: buffers.get(var, var)))


def _others(root: Any, between: Any) -> list[Any]:
    return [buffer for buffer in root.alloc_buffers if not buffer.same_as(between)]
