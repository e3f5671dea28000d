"""Kernels as TIR: rewriting statements, deciding conditions on loops, and telling which accesses may meet."""
