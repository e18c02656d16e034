"""Sparsifying the gradients that flow back through a model: dynamic threshold scaling (DTS) and its rivals."""

from acf.gradients.distributed import average_thresholds
from acf.gradients.rules import RULES, GradientRule
from acf.gradients.sparsifier import GradientSparsifier, install, sparsifier_of, uninstall
from acf.gradients.spec import GradientSparsity
from acf.gradients.tracking import GradientTracking, tracking

__all__ = [
    "RULES",
    "GradientRule",
    "GradientSparsifier",
    "GradientSparsity",
    "GradientTracking",
    "average_thresholds",
    "install",
    "sparsifier_of",
    "tracking",
    "uninstall",
]
