"""The Lightning callback, driven by hand and by Lightning itself."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from acf.errors import TopologyError
from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train.adapters import lightning_callback

POLICY = BlockDST(total_steps=20, every=2, schedule="constant")


def sparse_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    return model


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lightning of which only the base class is there."""
    package, module = ModuleType("lightning"), ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)


@pytest.mark.usefixtures("_stand_in")
def test_the_callback_attaches_on_start_and_detaches_at_the_end():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer, callback = SimpleNamespace(optimizers=[optimizer]), lightning_callback(POLICY)
    callback.on_train_start(trainer, model)
    train_step(model, optimizer)
    train_step(model, optimizer)
    assert [change.step for change in callback.controller.changes] == [2]
    callback.teardown(trainer, model, "fit")
    assert not optimizer._optimizer_step_post_hooks


@pytest.mark.usefixtures("_stand_in")
def test_a_state_loaded_before_the_optimizer_exists_is_taken_up_on_start():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer, first = SimpleNamespace(optimizers=[optimizer]), lightning_callback(POLICY)
    first.on_train_start(trainer, model)
    train_step(model, optimizer)
    state = first.state_dict()
    first.teardown(trainer, model, "fit")
    second = lightning_callback(POLICY)
    second.load_state_dict(state)
    assert second.state_dict() == state
    second.on_train_start(trainer, model)
    assert second.controller.step == 1


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
@pytest.mark.usefixtures("_stand_in")
def test_muon_beside_adamw_need_not_hold_a_sparse_layer():
    model = nn.Sequential(*sparse_model(), nn.Linear(16, 16))
    muon = torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.01)
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.dim() != 2], lr=0.01)
    callback = lightning_callback(POLICY)
    callback.on_train_start(SimpleNamespace(optimizers=[muon, adamw]), model)
    for _ in range(2):
        muon.zero_grad()
        train_step(model, adamw)
        muon.step()
    assert [change.step for change in callback.controller.changes] == [2]


@pytest.mark.usefixtures("_stand_in")
def test_optimizers_without_the_sparse_layer_are_refused_by_its_name():
    optimizers = [torch.optim.SGD(sparse_model().parameters()) for _ in range(2)]
    with pytest.raises(TopologyError, match=r"none of SGD, SGD holds 0\.weight"):
        lightning_callback(POLICY).on_train_start(SimpleNamespace(optimizers=optimizers), sparse_model())


@pytest.mark.filterwarnings("default")
def test_lightning_itself_trains_saves_and_resumes_with_moving_blocks(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = sparse_model()

        def training_step(self, batch, index):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    def fit(steps: int, checkpoint=None):
        module, moves = Module(), []
        callback = lightning_callback(POLICY, on_move=lambda step, figures: moves.append(step))
        trainer = lightning.Trainer(
            max_steps=steps, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        batch = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
        data = torch.utils.data.TensorDataset(batch.repeat(10, 1))  # Lightning starts its loader again when it resumes
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=checkpoint)
        return trainer, module, moves

    trainer, _, moves = fit(steps=5)
    assert moves == [2, 4]
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    _, resumed, moves = fit(steps=8, checkpoint=tmp_path / "run.ckpt")
    assert moves == [6, 8]
    _, whole, _ = fit(steps=8)
    assert torch.equal(resumed.net[0].mask(), whole.net[0].mask())
    torch.testing.assert_close(resumed.net[0].weight, whole.net[0].weight)
