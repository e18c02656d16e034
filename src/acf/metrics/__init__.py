"""Records of what was trained and measured."""

from acf.metrics.record import TrainingRecord
from acf.metrics.store import TopologyStore

__all__ = ["TopologyStore", "TrainingRecord"]
