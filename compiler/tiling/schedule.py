"""TVM's schedule as the templates use it: without the checks that its Python side makes of every argument.

Each step is checked by TVM itself, which raises ScheduleError. That its arguments have the types of their annotations
is worked out in Python before that, by taking the annotations apart anew for every call: that takes as long as a step.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, s_tir


class Schedule(s_tir.Schedule):
    """Steps take their arguments as they are."""


for _name, _step in vars(s_tir.Schedule).items():
    if callable(_step) and hasattr(_step, "__wrapped__"):
        setattr(Schedule, _name, _step.__wrapped__)


def schedule_of(func: Any) -> Schedule:
    """A schedule of one function, whose errors are not drawn into its text."""
    return Schedule(ir.IRModule({"main": func}), error_render_level="fast")
