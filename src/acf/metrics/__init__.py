"""Records of what was trained and measured."""

from acf.metrics.ablation import MEASURES, AblationPoint, AblationRecord, AblationRow, Measure, Spread
from acf.metrics.record import MaskSnapshot, TrainingRecord
from acf.metrics.run_log import RunLog
from acf.metrics.store import TopologyStore

__all__ = [
    "MEASURES",
    "AblationPoint",
    "AblationRecord",
    "AblationRow",
    "MaskSnapshot",
    "Measure",
    "RunLog",
    "Spread",
    "TopologyStore",
    "TrainingRecord",
]
