"""The columns of what grows while a core goes on: the clocks of its queues, then sums."""

from __future__ import annotations

from compiler.isa.dtypes import Queue

Q = len(Queue)
S = int(Queue.S)
# Per queue: when it is free, when all its results are there, its busy cycles, the instructions it took.
FREE, RESULT, BUSY, TAKEN = 0, Q, 2 * Q, 3 * Q
DDR_BYTES, LLB_BYTES, CONFLICT = 4 * Q, 4 * Q + 1, 4 * Q + 2
GROWING = 4 * Q + 3
