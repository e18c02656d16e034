"""The Adaptive Compute Fabric: sparse compute units, memory controllers that walk indices, a mesh."""

from acf.sim.fabric.play import ENGINES, Played, play
from acf.sim.fabric.spec import ACF_16384, AdaptiveFabric

__all__ = ["ACF_16384", "ENGINES", "AdaptiveFabric", "Played", "play"]
