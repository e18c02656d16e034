"""The Adaptive Compute Fabric: clusters of sparse compute units on a mesh, and index-aware controllers."""

from acf.sim.fabric.play import ENGINES, Played, play
from acf.sim.fabric.spec import AdaptiveFabric

__all__ = ["ENGINES", "AdaptiveFabric", "Played", "play"]
