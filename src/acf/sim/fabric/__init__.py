"""The Adaptive Compute Fabric: sparse compute units, memory controllers that walk indices, a mesh."""

from acf.sim.fabric.play import ENGINES, Played, play
from acf.sim.fabric.spec import AdaptiveFabric

__all__ = ["ENGINES", "AdaptiveFabric", "Played", "play"]
