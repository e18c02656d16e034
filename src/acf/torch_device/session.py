"""The runtime device behind ``torch.device("acf")``, and the traffic and host work on its timeline."""

from acf.offloading.engine import ProductEngine
from acf.runtime import Device


class Session:
    """The engine that runs the products of the process; made with the first tensor, on "sim" unless told otherwise."""

    def __init__(self) -> None:
        self._engine: ProductEngine | None = None

    @property
    def engine(self) -> ProductEngine:
        """The engine in use."""
        if self._engine is None:
            self._engine = ProductEngine(Device("sim"))
        return self._engine

    def use(self, device: Device) -> None:
        """Run products on ``device`` from now on."""
        self._engine = ProductEngine(device)

    def count_copy(self, direction: str, nbytes: int) -> None:
        """A tensor crossed the host link: "h2d" to the device, "d2h" to the host."""
        self.engine.charge_copy(direction, nbytes)


SESSION = Session()
