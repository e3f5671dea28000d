"""What is said before the simulator is compiled, which happens once for each version of it."""

from __future__ import annotations

import sys


def announce_simulator() -> None:
    from compiler.isa.jit import compiled_before

    if not compiled_before():
        print("note: compiling the simulator, once for this version; this takes some 20 seconds", file=sys.stderr)
