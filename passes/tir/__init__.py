"""Kernel passes: PrimFunc to PrimFunc."""
