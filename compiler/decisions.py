"""What was decided for a model, kept beside its kernels: a model that was compiled before is compiled as it was then.

Which of many ways is the fastest (how many clusters run it, in which order and how many pieces calls run, which of them
share a kernel, which kernels are several, whether calls run in bands, which constants are copied, which calls are a
model of their own behind the others) takes longer to find out than all else, where the cache has the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tvm_ffi import structural_hash

from compiler.fetching import Brought
from compiler.frontend import Imported
from compiler.kernel_cache import KernelCache, Key, compiler_digest, default_folder
from compiler.pipeline import Observer
from compiler.schedule.automatic import Way
from compiler.target import Chip

if TYPE_CHECKING:
    from compiler.options import Options


@dataclass(frozen=True)
class Decisions:
    clusters: int  # how many of them run it, each on its part of the batch; none where all work together
    way: Way | None  # how calls run, where that was searched for
    bands: bool  # whether calls may run in bands
    together: tuple[tuple[str, ...], ...]  # calls that share a kernel
    split: tuple[int, ...]  # of each kernel, in order: which of the ways to do its work in several; zero where one does
    copied: tuple[str, ...]  # constants that may be copied to LLB
    fetched: tuple[Brought, ...]  # what kernels bring to LLB for those behind them
    # The first calls of the tail, where head and tail are compiled as models of their own: nothing else then counts.
    tail: tuple[str, ...] = ()
    # The same where it is compiled as several, of which clusters run some each on some rows: how many, and which calls.
    sections: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Memory:
    """Where the decisions of one compilation are kept."""

    cache: KernelCache
    key: Key

    @classmethod
    def of(cls, imported: Imported, chip: Chip, options: Options, observer: Observer) -> Memory | None:
        """None for compilations that have to show what they do, or that follow files of which no digest is known."""
        watched = observer.watchers or observer.stop_after is not None or observer.without
        if not options.cache or watched or options.ops or options.schedule is not None:
            return None
        asked = [options.precision, options.shapes, options.dims, options.host_kernels, options.tune]
        said = sha256(json.dumps(["decisions", *asked], sort_keys=True, default=list).encode()).hexdigest()
        # The same file may be another graph: by operators that somebody declared.
        graph = f"{imported.source_sha256} {structural_hash(imported.module)}"
        key = Key(sha256(graph.encode()).hexdigest(), said, chip.content_hash, compiler_digest())
        return cls(KernelCache(default_folder()), key)

    def recalled(self) -> Decisions | None:
        content = self.cache.content(self.key)
        return None if content is None else _decisions(content)

    def keep(self, decisions: Decisions) -> None:
        way = None if decisions.way is None else decisions.way.numbers
        self.cache.store_content(self.key, {**vars(decisions), "way": way})


def _decisions(content: Any) -> Decisions | None:
    """None where somebody else wrote the entry."""
    if not isinstance(content, Mapping) or content.keys() != Decisions.__dataclass_fields__.keys():
        return None
    together, split, clusters = (content[name] for name in ("together", "split", "clusters"))
    copied, fetched, tail, sections = (content[name] for name in ("copied", "fetched", "tail", "sections"))
    if not all(isinstance(each, list) for each in (together, split, copied, fetched, tail, sections)):
        return None
    if not all(isinstance(each, list) and len(each) == 2 and isinstance(each[1], list) for each in sections):
        return None
    if not all(isinstance(each, list) for each in (*together, *fetched)):
        return None
    if not all(len(each) == len(Brought._fields) and all(isinstance(n, int) for n in each[1:]) for each in fetched):
        return None
    if not all(isinstance(index, int) for index in (*split, clusters)):
        return None
    calls = tuple(tuple(map(str, each)) for each in together)
    way = None if content["way"] is None else Way.of(content["way"])
    brought = tuple(Brought(str(source), *numbers) for source, *numbers in fetched)
    copied, tail = (tuple(map(str, each)) for each in (copied, tail))
    spread = tuple((int(number), tuple(map(str, names))) for number, names in sections)
    return Decisions(clusters, way, content["bands"] is True, calls, tuple(split), copied, brought, tail, spread)
