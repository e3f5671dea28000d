"""One known matrix times many: where these are narrow, as a convolution of single elements.

The cube makes one product after the other, and fills each up to whole fractals. Where the rows of the matrices are
channels of images, and their columns places, several images are rows of one product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.isa.layout import FRACTAL
from compiler.operators.broadcast import FLOATS, dtype_of, shape_of
from compiler.operators.graph import Graph, Value

# 512 matrices of 4 x 4 take 0.5k cycles on tw2 in fp16 so, not 2.0k, and 256 of 7 x 7 0.7k, not 1.2k. With columns that
# fill a fractal both ways take about as long.
MANY = 32


def pays(shape: tuple[int, ...], dtype: str) -> bool:
    """Whether there are many narrow matrices in a tensor of that shape."""
    return len(shape) > 2 and dtype in FLOATS and math.prod(shape[:-2]) >= MANY and 0 < shape[-1] < FRACTAL


def left_product(graph: Graph, matrix: np.ndarray[Any, Any], x: Value) -> Any:
    """The matrix times all that the last two axes of ``x`` hold."""
    shape = shape_of(x)
    if not pays(shape, dtype_of(x)):
        return graph.call("MatMul", graph.constant(matrix), x)
    *outer, given, inner = shape
    images = graph.call("Reshape", x, np.array([math.prod(outer), given, inner]), allowzero=True)
    made = graph.call("Conv", images, graph.constant(matrix[:, :, None]))
    return graph.call("Reshape", made, np.array([*outer, len(matrix), inner]), allowzero=True)
