"""Level one of PyTorch on the fabric: the products of a model's layers run on a device of `acf.runtime`."""

from acf.offloading.errors import OffloadError
from acf.offloading.run import OffloadRun, Unsupported, offload
from acf.offloading.table import StepUsage

__all__ = ["OffloadError", "OffloadRun", "StepUsage", "Unsupported", "offload"]
