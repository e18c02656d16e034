"""A Lightning callback that lets a policy move the blocks of the module it trains."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from acf.errors import MissingDependencyError
from acf.extras import import_optional
from acf.masks import TopologyPolicy
from acf.nn import block_sparse_layers
from acf.train.controller import TopologyController, attach
from acf.train.figures import OnMove
from acf.train.optimizers import parameters_of


def lightning_callback(policy: TopologyPolicy, on_move: OnMove | None = None) -> Any:
    """A ``Callback`` for ``Trainer(callbacks=[...])``; `acf.sparsify_` the module before the trainer gets it.

    It attaches when training starts, detaches when it ends, and keeps the topology's state in Lightning's own
    checkpoints. Where the module has several optimizers, a step counts when all that hold sparse
    layers have stepped. Its ``controller`` is the `acf.train.TopologyController` while training runs.
    """
    base: Any = _pytorch_module().Callback

    class TopologyCallback(base):  # type: ignore[misc]
        """Attaches on start, detaches at the end."""

        controller: TopologyController | None = None
        saved: dict[str, Any] | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Attach, and go on from a checkpoint where one was loaded."""
            self.controller = attach(pl_module, _sparse_optimizers(trainer.optimizers, pl_module), policy, on_move)
            if self.saved is not None:
                self.controller.load_state_dict(self.saved)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            """Detach, also after an exception."""
            if self.controller is not None:
                self.saved = self.controller.state_dict()
                self.controller.detach()
                self.controller = None

        def state_dict(self) -> dict[str, Any]:
            """What Lightning puts into its checkpoints."""
            return self.controller.state_dict() if self.controller is not None else self.saved or {}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Keep what Lightning read until the optimizer exists."""
            self.saved = state_dict or None

    return TopologyCallback()


def _pytorch_module() -> Any:
    try:
        return import_optional("lightning.pytorch", needed_by="this callback")
    except MissingDependencyError:
        if find_spec("pytorch_lightning") is None:
            raise
        return import_module("pytorch_lightning")


def _sparse_optimizers(optimizers: Sequence[Any], module: Any) -> list[Any]:
    """The optimizers that hold a packed weight, or all of them where none does, so that `attach` names the layer."""
    packed = {id(layer.weight) for layer in block_sparse_layers(module).values()}
    holding = [each for each in optimizers if any(id(parameter) in packed for parameter in parameters_of(each))]
    return holding or list(optimizers)
