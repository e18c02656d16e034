"""Parameters of the AXI4 masters: how many, widths, burst length, outstanding transactions."""

from dataclasses import dataclass

from acf.errors import RtlError

PAGE_BYTES = 4096
"""No AXI4 burst crosses a multiple of this many bytes; programs and results begin at one."""

INCREMENTING = 1
"""The burst type INCR."""


@dataclass(frozen=True)
class AxiSpec:
    """``masters`` equal ports to memory; a master has bursts of at most ``burst_beats``.

    ``outstanding_reads`` and ``outstanding_writes`` bursts of a master are in flight at most. Behind every master there
    is a memory channel of its own, as an HBM pseudo-channel is.
    """

    data_bits: int = 256
    address_bits: int = 40
    burst_beats: int = 16
    outstanding_reads: int = 16
    outstanding_writes: int = 8
    masters: int = 1

    def __post_init__(self) -> None:
        rules = (
            (
                self.data_bits in (32, 64, 128, 256, 512, 1024),
                f"an AXI4 bus of {self.data_bits} bits does not exist; use 32, 64, 128, 256, 512 or 1024",
            ),
            (
                13 <= self.address_bits <= 44,
                f"address_bits {self.address_bits} must be from 13 to 44, which a 32-bit page number reaches; use such",
            ),
            (
                self.burst_beats in (1, 2, 4, 8, 16, 32, 64, 128, 256)
                and self.burst_beats * self.data_bits <= 8 * PAGE_BYTES,
                f"burst_beats {self.burst_beats} must be a power of two up to 256 within {PAGE_BYTES} bytes; use fewer",
            ),
            (
                self.outstanding_reads >= 1 and self.outstanding_writes >= 1,
                "at least one burst must be allowed under way each way; give 1 or more",
            ),
            (self.masters >= 1, f"masters {self.masters} leave no way to memory; give 1 or more"),
        )
        for holds, message in rules:
            if not holds:
                raise RtlError(message)

    @property
    def beat_bytes(self) -> int:
        """Bytes of a beat."""
        return self.data_bits // 8

    @property
    def page_beats(self) -> int:
        """Beats of 4096 bytes."""
        return PAGE_BYTES // self.beat_bytes

    @property
    def size_code(self) -> int:
        """AxSIZE of a whole beat."""
        return self.beat_bytes.bit_length() - 1

    @property
    def beat_address_bits(self) -> int:
        """Bits of the number of a beat in memory."""
        return self.address_bits - self.size_code
