"""What the project changes in TVM while it runs: few things, one module each, retired when TVM has them itself.

A patch says why, what to send to TVM, and which TVM it was written for: by version, and by a hash of the source that it
replaces. Another TVM is refused, loudly: a patch that does not fit what it replaces is worse than none.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from operator import attrgetter
from typing import Any

from compiler.errors import Problem, UnsupportedError

PATCHES = ("array_iteration", "canonicalize_loop", "save_json")
# Set to "skip" by `make tvm-next`, which wants to see what a TVM does that no patch was written for yet.
UNFIT = "TILEWRIGHT_UNFIT_PATCHES"


@dataclass(frozen=True)
class Patch:
    """One change: ``replacement`` stands wherever ``replaces`` says that TVM keeps the original."""

    why: str  # one sentence
    upstream: str  # a link, or the diff or report that is ready to be sent
    replaces: tuple[str, ...]  # "module:attribute", all names of the same function
    fits: Mapping[str, str]  # sha256 of the source that is replaced, by version of TVM
    replacement: Callable[..., Any]
    shows_fault: Callable[[], bool]  # whether TVM, unpatched, still does the wrong thing; may end the process

    def misfit(self) -> str:
        """Why it cannot stand in this TVM; empty where it can."""
        import tvm

        known = self.fits.get(tvm.__version__)
        if known is None:
            return f"it was written for TVM {', '.join(self.fits)}; this is {tvm.__version__}"
        for name in self.replaces:
            if source_hash(original(name)) != known:
                return f"{name} is not what it replaces in TVM {tvm.__version__}"
        return ""


_originals: dict[str, Any] = {}


def load(name: str) -> Patch:
    patch = import_module(f"patches.{name}").PATCH
    if not isinstance(patch, Patch):
        raise TypeError(f"patches.{name} holds no Patch")
    return patch


def original(name: str) -> Any:
    """What TVM itself has under this name, patched or not."""
    module, _, attribute = name.partition(":")
    return _originals[name] if name in _originals else attrgetter(attribute)(import_module(module))


def source_hash(function: Any) -> str:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()


@cache
def apply() -> tuple[str, ...]:
    """Put every patch in place, once a process; which they are. Refuses a TVM that one of them does not fit."""
    patches = {name: load(name) for name in PATCHES}
    misfits = {name: why for name, patch in patches.items() if (why := patch.misfit())}
    if misfits and os.environ.get(UNFIT) != "skip":
        hint = "install the TVM that requirements.lock names; `make tvm-next` shows what another one needs"
        raise UnsupportedError([
            Problem("TW0060", f"patch {name} does not fit: {why}", hint=hint) for name, why in misfits.items()
        ])  # fmt: skip
    fitting = {name: patch for name, patch in patches.items() if name not in misfits}
    for patch in fitting.values():
        for name in patch.replaces:
            _originals[name] = original(name)
            module, _, attribute = name.partition(":")
            *owners, attribute = attribute.split(".")
            setattr(reduce(getattr, owners, import_module(module)), attribute, patch.replacement)
    return tuple(fitting)
