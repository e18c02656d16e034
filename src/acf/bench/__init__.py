"""What `acf bench` measures: kernels, training steps, accuracy, simulated machines. Nothing is read from a record."""

from collections.abc import Callable

OnProgress = Callable[[str, float], None]
"""Called with what is being done and the fraction of the whole that is finished, 0 to 1."""
