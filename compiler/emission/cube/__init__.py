"""Nests of the cube's side as instructions: operands on their way in, products, and results on their way out.

TIR knows these buffers by logical indices; where an element lies follows from the scope (:mod:`.places`).
"""

from compiler.emission.cube import bias, feature_maps, halves, operands, products, results, weights, windows

__all__ = ["bias", "feature_maps", "halves", "operands", "products", "results", "weights", "windows"]
