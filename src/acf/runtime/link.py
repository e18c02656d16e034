"""The link between host and device: PCI Express of a generation and a width."""

from dataclasses import dataclass

from acf.runtime.errors import InvalidValueError

TRANSFERS_PER_S = {3: 8e9, 4: 16e9, 5: 32e9}
"""Transfers per second of a lane by PCIe generation, a bit each: PCI Express Base Specification 5.0, section 1.2."""

ENCODING = 128 / 130
"""Share of the bits on a lane that carry data, generations 3 to 5."""

LANES = (1, 2, 4, 8, 16)

PACKET_OVERHEAD_BYTES = 24
"""Of a memory packet with a 64-bit address: framing and sequence number 4, header 16, link CRC 4."""


@dataclass(frozen=True, kw_only=True)
class HostLink:
    """PCI Express ``generation`` 3 to 5 with ``lanes`` lanes, full duplex.

    A copy takes ``latency_s`` and then its bytes at `bytes_per_s`, in packets of at most ``payload_bytes``. The host
    spends ``submission_s`` on every operation that it submits: it writes a descriptor and rings the doorbell.

    >>> round(HostLink(generation=4, lanes=16).bytes_per_s / 1e9, 1)
    28.8
    """

    generation: int = 4
    lanes: int = 16
    latency_s: float = 1e-6
    payload_bytes: int = 256
    submission_s: float = 2e-6

    def __post_init__(self) -> None:
        if self.generation not in TRANSFERS_PER_S:
            raise InvalidValueError(f"generation {self.generation} is not one of 3, 4, 5; use one of these")
        if self.lanes not in LANES:
            raise InvalidValueError(f"lanes {self.lanes} is not one of 1, 2, 4, 8, 16; use one of these")
        for name in ("latency_s", "submission_s"):
            if not getattr(self, name) >= 0:
                raise InvalidValueError(f"{name} {getattr(self, name)} is negative; give seconds from 0 up")
        if self.payload_bytes < 1:
            raise InvalidValueError(f"payload_bytes {self.payload_bytes} is below 1; PCIe allows 128 to 4096")

    @property
    def bytes_per_s(self) -> float:
        """Bytes of payload per second in one direction."""
        efficiency = self.payload_bytes / (self.payload_bytes + PACKET_OVERHEAD_BYTES)
        return TRANSFERS_PER_S[self.generation] * self.lanes / 8 * ENCODING * efficiency

    def copy_seconds(self, nbytes: int) -> float:
        """Seconds of one copy."""
        return self.latency_s + nbytes / self.bytes_per_s
