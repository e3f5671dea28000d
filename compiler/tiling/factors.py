"""Products of what is multiplied by a number: the product is multiplied instead.

    s = x * f                          ->    c = sum of x * b
    c = sum of s * b; y = cast(c)            y = cast(c * f)

What takes a product out of the matrix unit scales it in passing. Only in fp16: a sum in fp32 of products of such
numbers does not overflow, whatever the factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tir.products import is_product
from compiler.tir.sblocks import in_other_buffers
from compiler.tir.structure import structural_map, structural_walk

NARROW = "float16"


def scaled_behind(func: Any) -> Any:
    """The kernel with such stages gone; the same where there is none.

    1. Nothing but products reads what such a stage makes, each as one of its operands.
    2. Nothing but stages of the kernel reads those products.
    3. No product has what such a stage reads as its other operand: operands are two buffers.
    """
    blocks: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, blocks.append))
    stages = [block for block in blocks if isinstance(block.body, tirx.BufferStore)]
    products = [stage for stage in stages if is_product(stage)]
    found = _Factors(products)
    for stage in stages:
        readers = [other for other in stages if any(one.source.same_as(stage.body.buffer) for one in other.reads)]
        inner = all(reader in products and reader.body.buffer not in func.params for reader in readers)
        if readers and inner and stage.init is None and multiplies(stage.body) and found.keeps_apart(stage, readers):
            found.add(stage, readers)
    return func.with_body(found.applied(func.body)) if found.of else func


@dataclass
class _Factors:
    products: list[Any]
    of: dict[Any, Any] = field(default_factory=dict)  # by buffer that goes: what it was made of
    scale: dict[Any, float] = field(default_factory=dict)  # by buffer of a product: what it has to be multiplied by

    def keeps_apart(self, stage: Any, readers: list[Any]) -> bool:
        """Conditions 1 and 3."""
        gone, instead = stage.body.buffer, stage.body.value.a.source
        for reader in readers:
            loads: list[Any] = []
            structural_walk(reader.body.value, (ir.TensorLoad, loads.append))
            operands = [load.source for load in loads if not load.source.same_as(reader.body.buffer)]
            others = [self.of.get(operand, operand) for operand in operands if not operand.same_as(gone)]
            if len(operands) != 2 or len(others) != 1 or others[0].same_as(instead):
                return False
        return True

    def add(self, stage: Any, readers: list[Any]) -> None:
        self.of[stage.body.buffer] = stage.body.value.a.source
        for reader in readers:
            product = reader.body.buffer
            self.scale[product] = self.scale.get(product, 1.0) * float(stage.body.value.b)

    def applied(self, body: Any) -> Any:
        return structural_map(body, [(tirx.SeqStmt, self._without), (s_tir.SBlock, self._block)])

    def _without(self, sequence: Any) -> Any:
        kept = [part for part in sequence.seq if not self._is_stage(part)]
        return tirx.SeqStmt(kept) if len(kept) > 1 else kept[0]

    def _is_stage(self, statement: Any) -> bool:
        blocks: list[Any] = []
        structural_walk(statement, (s_tir.SBlock, blocks.append))
        return len(blocks) == 1 and all(write.source in self.of for write in blocks[0].writes)

    def _block(self, block: Any) -> Any:
        body = block.body
        if any(block.name_hint == product.name_hint for product in self.products):
            body = structural_map(body, (ir.TensorLoad, self._source))
        elif isinstance(body, tirx.BufferStore):
            body = structural_map(body, (ir.TensorLoad, self._scaled))
        kept = [buffer for buffer in block.alloc_buffers if buffer not in self.of]
        return in_other_buffers(block, self.of, body=body, writes=block.writes, alloc_buffers=kept)

    def _source(self, load: Any) -> Any:
        return tirx.BufferLoad(self.of[load.source], load.indices) if load.source in self.of else load

    def _scaled(self, load: Any) -> Any:
        scale = self.scale.get(load.source)
        return load if scale is None else load * tirx.FloatImm("float32", scale)


def multiplies(store: Any) -> bool:
    """Whether a stage that stores this multiplies each element of something in fp16 by a number."""
    value = store.value
    if not isinstance(value, tirx.Mul) or str(value.ty.dtype) != NARROW:
        return False
    if not isinstance(value.a, ir.TensorLoad) or not isinstance(value.b, tirx.FloatImm):
        return False
    read, written, shape = value.a.indices, store.indices, store.buffer.shape
    return len(read) == len(written) and all(
        i.same_as(j) or (isinstance(i, tirx.IntImm) and int(n) == 1)
        for i, j, n in zip(read, written, shape, strict=True)
    )
