"""The runtime device behind ``torch.device("acf")``, and the traffic and host work on its timeline."""

from collections.abc import Callable

from acf.offloading.engine import ProductEngine
from acf.runtime import Device, Stream


class Session:
    """The engine that runs the products of the process; made with the first tensor, on "sim" unless told otherwise."""

    def __init__(self) -> None:
        self._engine: ProductEngine | None = None
        self.stream_of_thread: Callable[[], Stream] | None = None
        """The stream that torch says is current in this thread; None: all work is in the default stream."""

    @property
    def engine(self) -> ProductEngine:
        """The engine in use."""
        if self._engine is None:
            self.use(Device("sim"))
        assert self._engine is not None
        return self._engine

    def use(self, device: Device) -> None:
        """Run products on ``device`` from now on."""
        self._engine = ProductEngine(device)
        if self.stream_of_thread is not None:
            self._engine.current_stream = self.stream_of_thread

    def count_copy(self, direction: str, nbytes: int) -> None:
        """A tensor crossed the host link: "h2d" to the device, "d2h" to the host."""
        self.engine.charge_copy(direction, nbytes)


SESSION = Session()
