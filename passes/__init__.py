"""The rewrites of the compiler, one per file: ``passes.graph`` on Relax, ``passes.tir`` on kernels.

Their order, with reasons, is in ``compiler/pipeline.py``.
"""
