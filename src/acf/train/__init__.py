"""Tying a topology policy to a model and its optimizer, inside the user's own training loop."""

from acf.train.controller import TopologyChange, TopologyController, attach

__all__ = ["TopologyChange", "TopologyController", "attach"]
