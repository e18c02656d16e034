"""Exported programs find the ops of `acf` by name."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import acf

LOAD = """
{imports}
program = torch.export.load({path!r})
print(float(program.module()(torch.ones(2, 16)).sum()))
"""


@pytest.mark.parametrize(
    "imports",
    ["import acf; import torch", "import torch; import acf", "import torch._export.serde.serialize; import acf, torch"],
)
def test_a_program_with_sparse_layers_loads_where_only_acf_is_imported(imports, tmp_path):
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 8))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (torch.ones(2, 16),)), path)
    code = LOAD.format(imports=imports, path=str(path))
    environment = {"PYTHONPATH": str(Path(acf.__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert float(answer.stdout) == pytest.approx(float(model(torch.ones(2, 16)).detach().sum()), rel=1e-4)
