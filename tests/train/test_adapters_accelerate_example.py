"""The Accelerate example does what it shows."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerate_training.py"


@pytest.mark.filterwarnings("default")
def test_the_accelerate_example_trains_with_moving_blocks(capsys):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    explored = [int(line.split("present, ")[1].split("%")[0]) for line in lines[:2]]
    assert all(share > 25 for share in explored)
    assert lines[2].endswith("after 200 steps")
    assert float(lines[2].split()[1]) < 1.0
