"""Run parts of the graph band by band of their images, so that what lies between calls stays on the chip."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from compiler import graph
from compiler.clusters import chip_of
from compiler.codegen.residence import TIGHT_SHARE, llb_pays
from compiler.schedule.automatic import fits
from compiler.schedule.cascades import Cascades, cascaded
from compiler.schedule.cascading import best_cascades
from compiler.schedule.manual import Manual
from compiler.schedule.noted import is_view, members_of, with_bands
from compiler.schedule.storage import storage_of
from compiler.target import Chip
from passes.base import Pass


@dataclass(frozen=True)
class ScheduleBands(Pass):
    """Cut tensors into bands of rows, and run calls once for each band, one call after another.

    a = conv(x, w); b = pool(a)
    -> a0 = conv'(x[0:18], w); b0 = pool'(a0);    a1 = conv"(x[14:32], w); b1 = pool"(a1);    b = b0, b1

    Calls run in bands where
    (1) each is proven to need, of what it is given, rows in an interval or the whole (:mod:`compiler.schedule.bands`),
    (2) they follow one another, and what one needs as a whole is made before the first of them, and
    (3) that is predicted to be faster (:mod:`compiler.schedule.cascading`), or a person says it.
    Bands at the edges of an image are functions of their own, those between share theirs. Nothing is cut where all that
    lives at once fits on the chip, nor what runs in pieces of the batch already.
    """

    name: ClassVar[str] = "schedule-bands"
    requires: ClassVar[frozenset[str]] = frozenset({"groups"})
    manual: Manual | None = None  # the schedule to be followed instead

    def run(self, subject: Any, chip: Chip) -> Any:
        if self.manual is not None:
            wanted = self.manual.cascades(subject)
            return with_bands(cascaded(Cascades(subject), wanted), subject, wanted) if wanted else subject
        chip = chip_of(subject, chip)
        body = graph.read(subject["main"])
        if not llb_pays(chip) or fits(storage_of(subject, body), chip, TIGHT_SHARE):
            return subject
        cascades = Cascades(subject)
        found = best_cascades(cascades, chip, _in_pieces(subject, body)).cascades
        return with_bands(cascaded(cascades, found), subject, found) if found else subject


def _in_pieces(module: Any, body: graph.Body) -> frozenset[int]:
    """The calls of which there are several: each is a piece."""
    names = [() if is_view(module, call) else tuple(members_of(module, call)) for call in body.calls]
    times = Counter(names)
    return frozenset(at for at, name in enumerate(names) if times[name] > 1)
