"""Machines as TOML to start from."""

from pathlib import Path

import pytest

from acf.sim import spec
from acf.sim.registry import load_architecture, shipped_names
from acf.sim.template import template


@pytest.mark.parametrize("name", shipped_names())
def test_a_template_loads_back_as_the_machine(name: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_text(template(name))
    assert load_architecture(path) == spec(name)


def test_a_comment_about_another_value_is_left_out() -> None:
    assert "# bf16" in template("acf-512")
    changed = template(spec("acf-512", dram_latency_s=1e-7))
    assert "dram_latency_s = 1e-07\n" in changed  # the shipped file calls its 200 ns assumed
