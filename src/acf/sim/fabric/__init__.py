"""The Adaptive Compute Fabric: sparse compute units in clusters on a mesh, fed by memory controllers that walk indices."""

from acf.sim.fabric.play import ENGINES, Played, play
from acf.sim.fabric.spec import AdaptiveFabric

__all__ = ["ENGINES", "AdaptiveFabric", "Played", "play"]
