"""Uses of a model's kernels: what its calls need, and the steps that these become once kernels are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm_ffi import StructuralKey

from compiler.kernel_pool import Job
from compiler.kernels import Kernel
from compiler.runtime.model import HostSegment
from compiler.tir.structure import answered_once, structural_walk

KernelKey = tuple[str, Any]


@dataclass(frozen=True)
class Step:
    """One kernel of the model, on the chip or on the host, and the buffers that it is called with."""

    name: str
    arguments: tuple[str, ...]
    nodes: tuple[str, ...]
    kernel: Kernel | None = None
    host: HostSegment | None = None


@dataclass(frozen=True)
class Use:
    """A call that needs a kernel of its own: the job, its buffers, and the calls of the imported graph it does."""

    job: Job
    arguments: tuple[str, ...]
    members: tuple[str, ...]
    group: Any = None  # the Relax function, where it can be taken apart
    share: str = ""  # what it does of its calls, where another kernel does the rest

    @property
    def name(self) -> str:
        """What reports call its kernel: pieces of a layer have the same one."""
        return f"{self.members[-1]}_{self.share}" if self.share else self.members[-1]

    @property
    def key(self) -> KernelKey:
        """Equal for uses of the same kernel."""
        return self.job.schedule, structural_key(self.job.func)


@answered_once
def written_parameters(func: Any) -> int:
    """How many of a PrimFunc's last parameters it writes."""
    stored = set[str]()
    structural_walk(func.body, (tirx.BufferStore, lambda store: stored.add(store.buffer.name)))
    return sum(param.name in stored for param in func.params)


@answered_once
def structural_key(func: Any) -> StructuralKey:
    """Equal for kernels that are the same but for names."""
    attributes = [
        name for name in (func.attrs.keys() if func.attrs else ()) if name == "global_symbol" or name.startswith("tw.")
    ]
    for name in attributes:
        func = func.without_attr(name)
    return StructuralKey(func)
