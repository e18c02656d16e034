"""The pipeline: every stage prints itself, and the command line can dump both lowerings."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from acf.cli import app
from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.lowering.pipeline import SHOWN_PRODUCTS, dump, dump_products, dump_program, lower_stages
from acf.sim.registry import find_architecture
from acf.trace import BitTensor, Matmul, Trace, TracedOp
from tests.lowering.random_products import fabric

SHAPE = fabric(mesh_rows=2, mesh_columns=2)


def two_products() -> Trace:
    first, second = np.eye(32), np.ones((32, 16))
    return Trace.from_matmuls([Matmul("fc1", "forward", first, second), Matmul("fc2", "input_grad", first, second)])


def test_a_lowered_product_prints_every_stage_in_order() -> None:
    text = str(lower_stages(Gemm(np.eye(32, dtype=bool), np.ones((32, 16), dtype=bool)), SHAPE))
    stages = [line.split(":")[0] for line in text.splitlines() if not line.startswith(" ")]
    assert stages == ["matrix product", "tiled product", "mapping", "program"]


def test_the_table_of_products_has_a_row_for_each() -> None:
    rows = [line.split() for line in dump_products(two_products()).splitlines()]
    assert rows[1:] == [
        ["fc1", "forward", "32", "32", "16", "0.0312", "1.0000", "512"],
        ["fc2", "input_grad", "32", "32", "16", "0.0312", "1.0000", "512"],
    ]


def test_programs_are_dumped_for_all_operations_or_for_one() -> None:
    assert dump_program(two_products(), SHAPE).count("program: ") == 2
    assert dump_program(two_products(), SHAPE, op="fc2").startswith("fc2 input_grad, product 1 of 1\n")


def test_of_a_large_batch_only_the_first_products_are_dumped() -> None:
    tensors = {"a": BitTensor.from_array(np.ones((9, 4, 4))), "b": BitTensor.from_array(np.ones((9, 4, 4)))}
    trace = Trace([TracedOp("scores", "forward", "a", "b", batched=True, weighted=False)], tensors)
    text = dump_program(trace, SHAPE)
    assert text.count("program: ") == SHOWN_PRODUCTS
    assert "product 1 of 9" in text


def test_a_dump_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="dump 'packets' is not one of products, program"):
        dump(two_products(), "packets", SHAPE)


def test_an_architecture_without_packets_has_no_program_to_dump() -> None:
    with pytest.raises(ArchitectureError, match="TensorCore runs no packets"):
        dump(two_products(), "program", find_architecture("tensorcore")[1])


@pytest.mark.parametrize(("lowering", "text"), [("products", "effectual MACs"), ("program", "row controllers: ")])
def test_the_command_line_dumps_a_lowering_instead_of_simulating(tmp_path: Path, lowering: str, text: str) -> None:
    path = tmp_path / "trace.safetensors"
    two_products().save(path)
    result = CliRunner().invoke(app, ["simulate", str(path), "--dump", lowering])
    assert result.exit_code == 0
    assert text in result.output
    assert "fc2" in result.output
