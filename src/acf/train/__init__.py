"""Tying a topology policy to a model and its optimizer, inside the user's own training loop."""

from acf.train.changes import TopologyChange
from acf.train.checkpoint import load_checkpoint, save_checkpoint
from acf.train.controller import TopologyController, attach
from acf.train.figures import LayerFigures, OnMove, write_scalars

__all__ = [
    "LayerFigures",
    "OnMove",
    "TopologyChange",
    "TopologyController",
    "attach",
    "load_checkpoint",
    "save_checkpoint",
    "write_scalars",
]
