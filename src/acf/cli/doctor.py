"""`acf doctor`: this machine, and the layers of a model on it."""

from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import Json, print_outcome
from acf.errors import AcfError, SparsityError

if TYPE_CHECKING:
    from acf.bench import OnProgress
    from acf.nn import BlockSparsity, LayerTiming

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
    from acf.nn import BlockSparsity
    from acf.tables import doctor_table, layer_table
    from acf.terminal import progress

    if layers:
        with progress(visible=not as_json) as on_progress:
            timings = _time_layers(layers, BlockSparsity(sparsity, block=block), cuda_graphs, on_progress)
        values = [
            vars(timing) | {"ratio": timing.ratio, "pays": timing.pays, "within_spread": timing.is_within_spread}
            for timing in timings
        ]
        print_outcome("layers", values, layer_table(timings, sparsity, block), as_json)
        return
    with progress(visible=not as_json) as on_progress:
        findings = examine(on_progress)
    print_outcome("doctor", [vars(finding) for finding in findings], doctor_table(findings), as_json)


def _time_layers(
    builder: str, spec: "BlockSparsity", cuda_graphs: bool, on_progress: "OnProgress"
) -> "list[LayerTiming]":
    """Call the named function for a model and its input, and time the model's layers."""
    from acf.doctor import build_model
    from acf.nn import time_layers

    model, example = build_model(builder)
    try:
        return time_layers(model, example, spec, cuda_graphs=cuda_graphs, on_progress=on_progress)
    except AcfError:
        raise
    except Exception as error:  # the model is the user's
        reason = ": ".join((type(error).__name__, *str(error).splitlines()[:1]))
        raise SparsityError(
            f"the model of {builder!r} cannot be called with its example ({reason}); return an input that it takes"
        ) from error
