"""What a device in gates is built of."""

from dataclasses import dataclass
from pathlib import Path

from acf.runtime.errors import InvalidValueError
from acf.sim.accelerator import AcceleratorSpec

SIMULATORS = ("auto", "verilator", "pysim")


@dataclass(frozen=True)
class RtlSpec:
    """A device to build: its ``fabric``, the memory at its bus, the largest index it walks, and what simulates it.

    ``fabric``: a name such as "acf-512", a TOML file or a Spec; None: a mesh of 2 x 2 SCUs with tiles of 8.
    ``simulator``: "verilator", "pysim" (Amaranth's own, slow), or "auto", which takes Verilator where there is one.
    """

    fabric: str | Path | AcceleratorSpec | None = None
    memory_bytes: int = 1 << 20
    index_words: int = 8192
    blocks: int = 1024
    column_tiles: int = 64
    depths: int = 64
    simulator: str = "auto"
    most_cycles: int = 10_000_000

    def __post_init__(self) -> None:
        if self.simulator not in SIMULATORS:
            raise InvalidValueError(
                f"simulator {self.simulator!r} is not one of {', '.join(SIMULATORS)}; use one of these"
            )
        for name in ("memory_bytes", "index_words", "blocks", "column_tiles", "depths", "most_cycles"):
            if getattr(self, name) < 1:
                raise InvalidValueError(f"{name} {getattr(self, name)} is below 1; give a positive number")
