"""Records of what was trained and measured."""

from acf.metrics.record import TrainingRecord

__all__ = ["TrainingRecord"]
