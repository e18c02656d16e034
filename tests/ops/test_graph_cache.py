"""Graphs that torch has kept on disk are those of these ops, not of others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.compiler import config

from acf.ops import graph_cache
from acf.ops.graph_cache import TAG, tag_graph_cache, tag_of


@pytest.fixture
def ops_folder(tmp_path: Path) -> Path:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "linear.py").write_text("y = x @ w")
    (tmp_path / "cpu" / "call.py").write_text("run()")
    return tmp_path


def test_a_changed_renamed_or_new_source_changes_the_tag(ops_folder: Path) -> None:
    tags = [tag_of(ops_folder)]
    (ops_folder / "cpu" / "call.py").write_text("walk()")
    tags.append(tag_of(ops_folder))
    (ops_folder / "linear.py").rename(ops_folder / "dense.py")
    tags.append(tag_of(ops_folder))
    (ops_folder / "conv.py").touch()
    tags.append(tag_of(ops_folder))
    assert len(set(tags)) == 4
    assert tags[-1] == tag_of(ops_folder)


@pytest.fixture
def tag_of_another(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = config.cache_key_tag
    config.cache_key_tag = f"experiment {TAG}0123 attention=flash"
    yield
    config.cache_key_tag = before


def test_a_tag_of_the_user_stays_and_one_of_other_ops_goes(tag_of_another: None) -> None:
    for _ in range(2):
        tag_graph_cache()
        assert config.cache_key_tag == f"experiment attention=flash {tag_of(Path(graph_cache.__file__).parent)}"


def test_importing_the_ops_sets_it() -> None:
    assert tag_of(Path(graph_cache.__file__).parent) in config.cache_key_tag


def test_the_key_of_a_compiled_graph_has_it() -> None:
    from torch._inductor.codecache import FxGraphHashDetails

    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    assert FxGraphHashDetails(graph, [], {}, []).cache_key_tag == config.cache_key_tag
