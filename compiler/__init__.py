"""Tilewright: a compiler for tiled AI accelerators, and the machine it compiles for.

Importing this package costs nothing: each part imports what it needs when it is used.
"""

__version__ = "0.1.0"
