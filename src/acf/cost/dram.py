"""Timing, geometry and currents of DRAM devices, each number with its source."""

from acf.cost.figures import Figure

_HBM2 = "DRAMsim3 (Li et al., CAL 2020), configuration HBM2_8Gb_x128: JESD235 at 1 GHz, 2 Gb/s per pin"
_DDR4 = "DRAMsim3 (Li et al., CAL 2020), configuration DDR4_8Gb_x8_2400: Micron MT40A1G8 -083E, JESD79-4"

_CYCLES: dict[str, tuple[int, int, str]] = {
    # name: HBM2, DDR4-2400, what it is
    "activate_to_column": (14, 16, "tRCD"),
    "precharge_to_activate": (14, 16, "tRP"),
    "activate_to_precharge": (34, 39, "tRAS"),
    "read_latency": (14, 16, "CL"),
    "write_latency": (4, 16, "CWL"),
    "column_to_column_same_group": (2, 6, "tCCD_L"),
    "column_to_column_other_group": (1, 4, "tCCD_S"),
    "activate_to_activate_same_group": (6, 6, "tRRD_L"),
    "activate_to_activate_other_group": (4, 4, "tRRD_S"),
    "four_activates": (30, 26, "tFAW"),
    "read_to_precharge": (6, 9, "tRTP: HBM2 tRTP_L; DDR4 7.5 ns of JESD79-4"),
    "write_recovery": (16, 19, "tWR"),
    "write_to_read_same_group": (8, 9, "tWTR_L"),
    "write_to_read_other_group": (6, 3, "tWTR_S"),
    "bus_turnaround": (2, 2, "tRTRS"),
    "refresh": (260, 420, "tRFC"),
    "refresh_interval": (3900, 9364, "tREFI"),
}

_GEOMETRY: dict[str, tuple[float, float, str, str]] = {
    "cycle_ns": (1.0, 0.833, "ns", "tCK"),
    "bank_groups": (4, 4, "groups", "bank groups of a channel"),
    "banks_per_group": (4, 4, "banks", "banks of a group"),
    "rows": (32768, 65536, "rows", "rows of a bank"),
    "row_bytes": (2048, 8192, "bytes", "page: HBM2 64 columns x 2 x 128 bit; DDR4 1024 columns x 8 bit x 8 devices"),
    "burst_bytes": (64, 64, "bytes", "HBM2 BL 4 on 128 bit; DDR4 BL 8 on 64 bit"),
    "burst_cycles": (2, 4, "cycles", "burst length over two, double data rate"),
    "devices": (1, 8, "devices", "devices that share a command: bus width over device width"),
    "bank_queue_depth": (8, 8, "requests", "command queue per bank"),
    "transaction_queue_depth": (32, 32, "requests", "read queue, and write buffer, of a channel"),
}

_ELECTRICAL: dict[str, tuple[float, float, str, str]] = {
    "supply": (1.2, 1.2, "V", "VDD"),
    "activate_precharge": (65, 48, "mA", "IDD0"),
    "precharge_standby": (40, 34, "mA", "IDD2N"),
    "active_standby": (55, 43, "mA", "IDD3N"),
    "read_burst": (390, 135, "mA", "IDD4R"),
    "write_burst": (500, 123, "mA", "IDD4W"),
    "refresh_burst": (250, 250, "mA", "IDD5AB"),
}


def _figures(column: int, source: str) -> dict[str, Figure]:
    timings = {
        name: Figure((hbm2, ddr4)[column], "cycles", f"{source}; {meaning}")
        for name, (hbm2, ddr4, meaning) in _CYCLES.items()
    }
    others = {
        name: Figure((hbm2, ddr4)[column], unit, f"{source}; {meaning}")
        for name, (hbm2, ddr4, unit, meaning) in (_GEOMETRY | _ELECTRICAL).items()
    }
    return timings | others


DRAM_FIGURES: dict[str, dict[str, Figure]] = {"hbm2": _figures(0, _HBM2), "ddr4-2400": _figures(1, _DDR4)}
"""Timing, geometry and currents of one channel, by kind of memory and name of the field."""
