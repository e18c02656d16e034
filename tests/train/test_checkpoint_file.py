"""Checkpoints in one file: what goes in, what comes out, and that a failure leaves the old one."""

import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import acf
from acf.errors import FileError, TopologyError


class Run:
    """A sparse model whose blocks and gradient thresholds move, its optimizer and its controller."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
        acf.sparsify_(self.model, acf.BlockSparsity(0.75, block=4))
        acf.sparsify_(self.model, acf.GradientSparsity(0.5))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.topology = acf.attach(self.model, self.optimizer, acf.BlockDST(total_steps=50, every=4))
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=7)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(8, 16)
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), x.flip(1)).backward()
            self.optimizer.step()
            self.scheduler.step()

    @property
    def parts(self) -> dict[str, object]:
        return {
            "topology": self.topology,
            "scheduler": self.scheduler,
            "optimizer": self.optimizer,
            "model": self.model,
        }


def test_twenty_steps_and_twenty_more_from_the_file_are_forty_steps_bit_for_bit(tmp_path):
    whole = Run(seed=1)
    whole.train(20)
    acf.save_checkpoint(tmp_path / "new folder" / "run.pt", **whole.parts, random=torch.get_rng_state(), epoch=3)
    whole.train(20)
    random = torch.get_rng_state()

    resumed = Run(seed=2)
    rest = acf.load_checkpoint(tmp_path / "new folder" / "run.pt", **resumed.parts)
    assert rest.pop("epoch") == 3
    torch.set_rng_state(rest.pop("random"))
    assert rest == {}
    resumed.train(20)

    assert torch.equal(torch.get_rng_state(), random)
    assert resumed.topology.step == 40
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name
    assert "0.gradient_sparsifier.threshold" in whole.model.state_dict()
    assert resumed.scheduler.state_dict() == whole.scheduler.state_dict()
    moments = (run.optimizer.state_dict()["state"][0]["exp_avg"] for run in (whole, resumed))
    assert torch.equal(*moments)


def test_a_failure_while_writing_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    run, path = Run(seed=1), tmp_path / "run.pt"
    acf.save_checkpoint(path, model=run.model)
    before = path.read_bytes()

    def fail(state, file) -> None:
        file.write(b"half of")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        acf.save_checkpoint(path, model=run.model)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_part_that_the_file_lacks_is_named_and_nothing_is_loaded(tmp_path):
    run, other = Run(seed=1), Run(seed=2)
    acf.save_checkpoint(tmp_path / "run.pt", model=run.model, epoch=1)
    before = other.model[0].weight.detach().clone()
    with pytest.raises(TopologyError, match=r"run\.pt holds epoch, model, not topology; ask for what it holds"):
        acf.load_checkpoint(tmp_path / "run.pt", model=other.model, topology=other.topology)
    assert torch.equal(other.model[0].weight, before)


@pytest.mark.parametrize(
    "content", [None, b"", b"PK half a file", b"\x80\x02text"], ids=["none", "empty", "half", "text"]
)
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    path = Path(tmp_path / "run.pt")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=r"run\.pt is no checkpoint \("):
        acf.load_checkpoint(path)


def test_a_tensor_alone_is_refused_as_a_checkpoint(tmp_path):
    torch.save(torch.ones(2), tmp_path / "run.pt")
    with pytest.raises(FileError, match="it holds a Tensor"):
        acf.load_checkpoint(tmp_path / "run.pt")


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        acf.save_checkpoint(tmp_path / "file" / "run.pt", epoch=1)


def test_a_file_says_its_format_and_a_newer_one_is_refused(tmp_path):
    run, path = Run(seed=1), tmp_path / "run.pt"
    acf.save_checkpoint(path, model=run.model)
    state = torch.load(path, weights_only=True)
    assert state["acf_checkpoint_version"] == 1
    torch.save({**state, "acf_checkpoint_version": 2}, path)
    with pytest.raises(TopologyError, match=r"run\.pt has format 2, this release of acf reads formats up to 1"):
        acf.load_checkpoint(path, model=run.model)


def test_the_name_of_the_format_cannot_be_a_part(tmp_path):
    with pytest.raises(TopologyError, match="give the part another name"):
        acf.save_checkpoint(tmp_path / "run.pt", acf_checkpoint_version=3)


def test_the_state_of_another_optimizer_is_refused_by_the_name_of_the_part(tmp_path):
    weight = nn.Parameter(torch.zeros(3))
    acf.save_checkpoint(tmp_path / "run.pt", optimizer=torch.optim.SGD([weight]))
    two = torch.optim.SGD([{"params": [weight]}, {"params": [nn.Parameter(torch.zeros(2))]}])
    with pytest.raises(FileError, match=r"run\.pt: optimizer cannot be loaded \(.+\); pass the optimizer that was"):
        acf.load_checkpoint(tmp_path / "run.pt", optimizer=two)


def packed_again(source: Path, target: Path, how: int, copies: int = 1) -> None:
    """The members of a checkpoint in another archive, compressed or several times over."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w", how) as other:
        for member in archive.infolist():
            other.writestr(member.filename, archive.read(member), how)
        for _ in range(copies - 1):
            other.filelist.append(other.filelist[0])  # one more name for the same bytes


@pytest.mark.parametrize(
    ("how", "copies", "message"),
    [
        (zipfile.ZIP_DEFLATED, 1, "it is compressed, as torch.save never does"),
        (zipfile.ZIP_STORED, 1000, "its parts are longer than the file"),
    ],
)
def test_a_checkpoint_that_unpacks_to_more_than_its_size_is_refused(
    tmp_path: Path, how: int, copies: int, message: str
) -> None:
    model = torch.nn.Linear(64, 64)
    acf.save_checkpoint(tmp_path / "run.pt", model=model)
    packed_again(tmp_path / "run.pt", tmp_path / "again.pt", zipfile.ZIP_STORED)
    acf.load_checkpoint(tmp_path / "again.pt", model=model)
    packed_again(tmp_path / "run.pt", tmp_path / "bomb.pt", how, copies)
    with pytest.raises(FileError, match=message):
        acf.load_checkpoint(tmp_path / "bomb.pt", model=model)
