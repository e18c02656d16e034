"""A Hugging Face ``TrainerCallback`` that lets a policy move the blocks of the model it trains."""

from pathlib import Path
from typing import Any

import torch

from acf.errors import TopologyError
from acf.extras import import_optional
from acf.masks import TopologyPolicy
from acf.train.checkpoint import write_state
from acf.train.controller import TopologyController, attach
from acf.train.figures import OnMove

FILE_NAME = "topology.pt"
"""The file in a checkpoint folder that holds the controller's state, loadable with ``weights_only=True``."""


def hugging_face_callback(policy: TopologyPolicy, on_move: OnMove | None = None) -> Any:
    """A ``TrainerCallback`` for ``Trainer(callbacks=[...])``; `acf.sparsify_` the model before the trainer gets it.

    It attaches when training begins, detaches when it ends, and adds ``topology.pt`` to every checkpoint folder, which
    a resumed run reads. Its ``controller`` is the `acf.train.TopologyController` while training runs.
    """
    base: Any = _transformers().TrainerCallback

    class TopologyCallback(base):  # type: ignore[misc]
        """Attaches at the beginning, detaches at the end."""

        controller: TopologyController | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Attach, and go on from a checkpoint where the trainer did."""
            optimizer = kwargs["optimizer"]
            optimizer = getattr(optimizer, "optimizer", optimizer)  # what accelerate wraps
            self.controller = attach(kwargs["model"], optimizer, policy, on_move)
            if state.global_step > 0:
                self.controller.load_state_dict(_read(_checkpoint_folder(args, state)))

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Add the topology's state to the checkpoint that was just written."""
            if self.controller is not None and state.is_world_process_zero:
                folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                write_state(folder / FILE_NAME, self.controller.state_dict())

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Detach."""
            if self.controller is not None:
                self.controller.detach()

    return TopologyCallback()


def _transformers() -> Any:
    return import_optional("transformers", needed_by="this callback")


def _checkpoint_folder(args: Any, state: Any) -> Path:
    """Where the trainer resumed from: the folder it was told, or the one of this step in its own."""
    named = getattr(args, "resume_from_checkpoint", None)
    if isinstance(named, str) and Path(named).is_dir():
        return Path(named)
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _read(folder: Path) -> dict[str, Any]:
    path = folder / FILE_NAME
    if not path.is_file():
        raise TopologyError(
            f"{path} does not exist, so the topology cannot go on where the trainer does; resume from a checkpoint "
            "that was written with this callback, or train without resuming"
        )
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state
