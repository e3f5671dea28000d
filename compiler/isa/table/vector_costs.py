"""Cycles per repeat of the vector unit's instructions: what one repeat costs where no bank conflict adds to it.

Measured figures are the published calibration of Ascend 910B (slope per repeat of 256 bytes). Figures marked
*composed* add the slopes of the steps that the instruction replaces; those marked *assumed* have no public number.
"""

from __future__ import annotations

SIMPLE = 1  # vadds, vmuls, vrelu, vabs, vcopy, vdup, vrsqrt: measured; vadd and vmul without bank conflicts: measured
EXP = 2  # vexp, vln: measured
SQRT = 2  # vsqrt: measured
CONVERT = 2  # vconv, any pair: measured
COMPARE = 2  # vcmpv: measured
SELECT = 2  # vsel: measured
DIVIDE = 4  # vdiv: measured
ROW_REDUCE = 7  # vcadd, the sum of a whole repeat: measured
BLOCK_REDUCE = 1  # vcgadd, vcgmax, one result per 32-byte block: measured
COMPRESS = 14  # vreducev2 (GatherMask): measured
GATHER = 14  # assumed as vreducev2: vgather issues in 2, but each row of a tile was measured at 46.6 cycles more
MERGE = 78  # vmrgsort4: measured
SORT32 = 16  # assumed: sorting a group is a fixed network, cheaper than one merge step
TRANSPOSE = 2  # assumed as vconv: one pass through the permutation network
SCAN = 7  # assumed as vcadd: both carry a partial result across the lanes of a repeat

LOGISTIC = EXP + SIMPLE + DIVIDE  # composed: exp, add, divide
TRIGONOMETRIC = 8  # composed: range reduction and a polynomial of odd degree 7
INVERSE_TRIGONOMETRIC = 12  # composed: square root, divide, polynomial
HYPERBOLIC = 2 * EXP + DIVIDE  # composed
LOGARITHMIC = EXP + 2 * SIMPLE  # composed: logarithm and its argument or scale
POWER = 2 * EXP + SIMPLE  # composed: ln, multiply, exp
ERF = 16  # composed: polynomials of 12 steps and a divide
GELU = ERF + 2 * SIMPLE  # composed
MODULO = DIVIDE + 3 * SIMPLE  # composed: divide, round, multiply, subtract
RANDOM = 8  # assumed: two multiply-and-shift rounds in 64 bits
