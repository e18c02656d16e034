"""The callback for Hugging Face's trainer, driven by hand and by the trainer itself."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from acf.errors import TopologyError
from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train.adapters import hugging_face_callback

POLICY = BlockDST(total_steps=20, every=2, schedule="constant")


class Regression(nn.Module):
    """A model as the trainer wants it: keyword inputs, and the loss in its output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        sparsify_(self, BlockSparsity(sparsity=0.5, block=4))

    def forward(self, x, labels=None):
        y = self.net(x)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 16), torch.randn(4, 16))["loss"].backward()
    optimizer.step()


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transformers package of which only the base class is there."""
    module = ModuleType("transformers")
    module.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", module)


@pytest.mark.usefixtures("_stand_in")
def test_the_callback_attaches_to_the_optimizer_inside_a_wrapper_saves_and_resumes(tmp_path):
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    wrapped, args = SimpleNamespace(optimizer=optimizer), SimpleNamespace(output_dir=str(tmp_path))
    (tmp_path / "checkpoint-3").mkdir()
    first, second = hugging_face_callback(POLICY), hugging_face_callback(POLICY)
    first.on_train_begin(args, SimpleNamespace(global_step=0), None, model=model, optimizer=wrapped)
    for _ in range(3):
        train_step(model, optimizer)
    assert {change.step for change in first.controller.changes} == {2}
    state = SimpleNamespace(global_step=3, is_world_process_zero=True)
    first.on_save(args, state, None)
    first.on_train_end(args, state, None)
    assert not optimizer._optimizer_step_post_hooks
    second.on_train_begin(args, state, None, model=model, optimizer=wrapped)
    assert second.controller.step == 3


@pytest.mark.usefixtures("_stand_in")
def test_resuming_from_a_checkpoint_without_a_topology_is_refused(tmp_path):
    model = Regression()
    optimizer, args = torch.optim.SGD(model.parameters()), SimpleNamespace(output_dir=str(tmp_path))
    with pytest.raises(TopologyError, match=r"topology\.pt does not exist, so the topology cannot go on"):
        hugging_face_callback(POLICY).on_train_begin(
            args, SimpleNamespace(global_step=3), None, model=model, optimizer=optimizer
        )


@pytest.mark.filterwarnings("default")
def test_the_trainer_itself_trains_saves_and_resumes_with_moving_blocks(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    generator = torch.Generator().manual_seed(1)
    data = [{"x": row, "labels": row.flip(0)} for row in torch.randn(64, 16, generator=generator)]

    def fit(folder: str, steps: int, resume: bool = False):
        model, moves = Regression(), []
        arguments = transformers.TrainingArguments(
            output_dir=tmp_path / folder, max_steps=steps, per_device_train_batch_size=4, save_steps=5, use_cpu=True,
            report_to="none", disable_tqdm=True, lr_scheduler_type="constant", logging_strategy="no",
        )  # fmt: skip
        callback = hugging_face_callback(POLICY, on_move=lambda step, figures: moves.append(step))
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback])
        trainer.train(resume_from_checkpoint=resume)
        return model, moves

    _, moves = fit("stopped", steps=5)
    assert moves == [2, 4]
    resumed, moves = fit("stopped", steps=8, resume=True)
    assert moves == [6, 8]
    whole, _ = fit("whole", steps=8)
    assert torch.equal(resumed.net[0].mask(), whole.net[0].mask())
    torch.testing.assert_close(resumed.net[0].weight, whole.net[0].weight)
