"""Dynamic sparse training in the user's own loop: attaching a policy, carrying out its moves, checkpoints, DDP."""

from acf.train.changes import TopologyChange
from acf.train.checkpoint import load_checkpoint, save_checkpoint
from acf.train.controller import TopologyController, attach
from acf.train.distributed import data_parallel
from acf.train.ema import ema
from acf.train.figures import GradientFigures, LayerFigures, OnMove, gradient_figures, print_figures, write_scalars
from acf.train.optimizer_state import register_optimizer_state

__all__ = [
    "GradientFigures",
    "LayerFigures",
    "OnMove",
    "TopologyChange",
    "TopologyController",
    "attach",
    "data_parallel",
    "ema",
    "gradient_figures",
    "load_checkpoint",
    "print_figures",
    "register_optimizer_state",
    "save_checkpoint",
    "write_scalars",
]
