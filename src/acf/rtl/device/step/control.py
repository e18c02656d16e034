"""Who sets the products of a step up, and what the device moves at its end."""

from dataclasses import dataclass

from acf.options import option


@dataclass(frozen=True)
class StepControl:
    """With ``walks`` or ``moves`` the device derives every product from its descriptor and index."""

    walks: bool = option(False, "The device walks the index of every product; else the host sends commands.")
    moves: int = option(0, "Blocks that the device moves at the end of a walked step; a second one follows.", min=0)
    dataflow: str = option(
        "fastest", "Of walked products, with --moves of the weight gradient: output-stationary, split-K or fastest."
    )
