"""`acf doctor`: this machine, and the layers of a model on it."""

from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import Json, print_outcome
from acf.errors import AcfError, SparsityError

if TYPE_CHECKING:
    from acf.nn import LayerTiming

app = typer.Typer()


@app.command()
def doctor(
    layers: Annotated[
        str, typer.Option(help="module:function that returns (model, example input): time its layers dense and sparse.")
    ] = "",
    sparsity: Annotated[float, typer.Option(help="With --layers: share of blocks to drop.")] = 0.9,
    block: Annotated[int, typer.Option(help="With --layers: side of a block.")] = 32,
    cuda_graphs: Annotated[
        bool, typer.Option("--cuda-graphs", help="With --layers, on a GPU: as layers run in a captured step.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what this machine has and what works because of it; with --layers, which layers of a model pay here."""
    from acf.doctor import examine
    from acf.tables import doctor_table, layer_table

    if layers:
        timings = _time_layers(layers, sparsity, block, cuda_graphs)
        values = [vars(timing) | {"ratio": timing.ratio, "pays": timing.pays} for timing in timings]
        print_outcome(values, layer_table(timings, sparsity, block), as_json)
        return
    findings = examine()
    print_outcome([vars(finding) for finding in findings], doctor_table(findings), as_json)


def _time_layers(builder: str, sparsity: float, block: int, cuda_graphs: bool) -> "list[LayerTiming]":
    """Call the named function for a model and its input, and time the model's layers."""
    from acf.doctor import build_model
    from acf.nn import BlockSparsity, time_layers

    spec = BlockSparsity(sparsity, block=block)
    model, example = build_model(builder)
    try:
        return time_layers(model, example, spec, cuda_graphs=cuda_graphs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, AcfError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SparsityError(
            f"the model of {builder!r} cannot be called with its example ({reason}); return an input that it takes"
        ) from error
