"""ACF: train neural networks with dynamic block sparsity, and play the same run on modelled hardware.

The names in ``__all__`` are the public ones. Each is imported when it is first used, so that ``import acf`` and the
command line start without torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from acf.version import __version__ as __version__

if TYPE_CHECKING:
    from acf import runtime as runtime
    from acf.errors import AcfError as AcfError
    from acf.gradients import GradientSparsity as GradientSparsity
    from acf.masks import SET as SET
    from acf.masks import BlockDST as BlockDST
    from acf.masks import GradualPruning as GradualPruning
    from acf.masks import StaticTopology as StaticTopology
    from acf.metrics import RunLog as RunLog
    from acf.metrics import TopologyStore as TopologyStore
    from acf.metrics import TrainingRecord as TrainingRecord
    from acf.metrics.meters import EnergyMeter as EnergyMeter
    from acf.nn import BlockSparsity as BlockSparsity
    from acf.nn import ExpertLinear as ExpertLinear
    from acf.nn import Experts as Experts
    from acf.nn import FusedSequential as FusedSequential
    from acf.nn import GatedMLP as GatedMLP
    from acf.nn import NMSparsity as NMSparsity
    from acf.nn import densify_ as densify_
    from acf.nn import faster_layers as faster_layers
    from acf.nn import fuse_batch_norms_ as fuse_batch_norms_
    from acf.nn import fuse_gated_mlps_ as fuse_gated_mlps_
    from acf.nn import fuse_mlps_ as fuse_mlps_
    from acf.nn import load_sparse as load_sparse
    from acf.nn import save_sparse as save_sparse
    from acf.nn import sparsify_ as sparsify_
    from acf.nn import weight_sparsity as weight_sparsity
    from acf.nn.plan import PlanOptions as PlanOptions
    from acf.nn.plan import SparsityPlan as SparsityPlan
    from acf.nn.plan import plan as plan
    from acf.nn.tensor_parallel import ColwiseBlockParallel as ColwiseBlockParallel
    from acf.nn.tensor_parallel import RowwiseBlockParallel as RowwiseBlockParallel
    from acf.offloading import offload as offload
    from acf.report import report as report
    from acf.report.timeline import Timeline as Timeline
    from acf.sim import Result as Result
    from acf.sim import architectures as architectures
    from acf.sim import spec as spec
    from acf.sim.simulate import simulate as simulate
    from acf.trace import Matmul as Matmul
    from acf.trace import Trace as Trace
    from acf.trace import capture as capture
    from acf.train import GradientFigures as GradientFigures
    from acf.train import LayerFigures as LayerFigures
    from acf.train import attach as attach
    from acf.train import data_parallel as data_parallel
    from acf.train import ema as ema
    from acf.train import gradient_figures as gradient_figures
    from acf.train import load_checkpoint as load_checkpoint
    from acf.train import print_figures as print_figures
    from acf.train import register_optimizer_state as register_optimizer_state
    from acf.train import save_checkpoint as save_checkpoint
    from acf.train import write_scalars as write_scalars
    from acf.train.adapters import hugging_face_callback as hugging_face_callback
    from acf.train.adapters import lightning_callback as lightning_callback
    from acf.train.graphed import GraphedStep as GraphedStep
    from acf.train.sharded_checkpoint import load_sharded as load_sharded
    from acf.train.sharded_checkpoint import save_sharded as save_sharded
    from acf.train.warm_up import warm_up as warm_up

_HOME_OF = {
    "AcfError": "acf.errors",
    "BlockDST": "acf.masks",
    "BlockSparsity": "acf.nn",
    "ColwiseBlockParallel": "acf.nn.tensor_parallel",
    "EnergyMeter": "acf.metrics.meters",
    "ExpertLinear": "acf.nn",
    "Experts": "acf.nn",
    "FusedSequential": "acf.nn",
    "GatedMLP": "acf.nn",
    "GradientFigures": "acf.train",
    "GradientSparsity": "acf.gradients",
    "GradualPruning": "acf.masks",
    "GraphedStep": "acf.train.graphed",
    "LayerFigures": "acf.train",
    "Matmul": "acf.trace",
    "NMSparsity": "acf.nn",
    "PlanOptions": "acf.nn.plan",
    "Result": "acf.sim",
    "RowwiseBlockParallel": "acf.nn.tensor_parallel",
    "RunLog": "acf.metrics",
    "SET": "acf.masks",
    "SparsityPlan": "acf.nn.plan",
    "StaticTopology": "acf.masks",
    "Timeline": "acf.report.timeline",
    "TopologyStore": "acf.metrics",
    "Trace": "acf.trace",
    "TrainingRecord": "acf.metrics",
    "architectures": "acf.sim",
    "attach": "acf.train",
    "capture": "acf.trace",
    "data_parallel": "acf.train",
    "densify_": "acf.nn",
    "ema": "acf.train",
    "faster_layers": "acf.nn",
    "fuse_batch_norms_": "acf.nn",
    "fuse_gated_mlps_": "acf.nn",
    "fuse_mlps_": "acf.nn",
    "gradient_figures": "acf.train",
    "hugging_face_callback": "acf.train.adapters",
    "lightning_callback": "acf.train.adapters",
    "load_checkpoint": "acf.train",
    "load_sharded": "acf.train.sharded_checkpoint",
    "offload": "acf.offloading",
    "plan": "acf.nn.plan",
    "load_sparse": "acf.nn",
    "print_figures": "acf.train",
    "register_optimizer_state": "acf.train",
    "report": "acf.report",
    "save_checkpoint": "acf.train",
    "save_sharded": "acf.train.sharded_checkpoint",
    "save_sparse": "acf.nn",
    "simulate": "acf.sim",
    "sparsify_": "acf.nn",
    "spec": "acf.sim",
    "warm_up": "acf.train.warm_up",
    "weight_sparsity": "acf.nn",
    "write_scalars": "acf.train",
}

__all__ = sorted(_HOME_OF)

_PACKAGES = ("runtime", "torch_device")
"""Packages whose names are public under their own name, as ``acf.runtime.Device``."""


class _OpsForExportedPrograms:
    """An import hook that registers the ops of `acf` before torch reads an exported program.

    ``torch.export.load`` looks ops up by name and imports its deserialiser when it is first called. Without the hook a
    program with sparse layers would load only after ``import acf.ops``.
    """

    trigger = "torch._export.serde.serialize"

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Find nothing; on the deserialiser's import, register the ops."""
        if name == self.trigger and self in sys.meta_path:
            sys.meta_path.remove(self)
            import_module("acf.ops")


if _OpsForExportedPrograms.trigger in sys.modules:
    import_module("acf.ops")
else:
    sys.meta_path.insert(0, _OpsForExportedPrograms())


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"acf.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'acf' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(import_module(_HOME_OF[name]), name)
    # Importing the callable package `acf.report` has already bound that name here; every other name is bound now.
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES, "__version__"]
