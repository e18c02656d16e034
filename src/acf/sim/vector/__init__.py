"""Vector work on modelled machines: its passes, the unit that runs them, and the schedule of whole steps."""

from acf.sim.vector.passes import PASSES, Pass
from acf.sim.vector.schedule import Job, Span, StepSchedule
from acf.sim.vector.unit import PassCount, VectorUnit, count_passes

__all__ = ["PASSES", "Job", "Pass", "PassCount", "Span", "StepSchedule", "VectorUnit", "count_passes"]
