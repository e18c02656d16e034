"""AXI4 and AXI4-Lite as signatures, seen from the master; their flat port names are the usual ``m_axi_arvalid``."""

from amaranth.lib.wiring import In, Member, Out, Signature

from acf.rtl.design.axi.spec import AxiSpec

LITE_DATA_BITS = 32


class BusSignature(Signature):
    """A signature whose flat names are joined by one underscore, as tools expect of a standard bus."""

    separator = "_"


def axi4_read(spec: AxiSpec) -> BusSignature:
    """Channels AR and R of AXI4."""
    return BusSignature(_read_channels(spec))


def axi4_write(spec: AxiSpec) -> BusSignature:
    """Channels AW, W and B of AXI4."""
    return BusSignature(_write_channels(spec))


def axi4(spec: AxiSpec) -> BusSignature:
    """All five channels of AXI4."""
    return BusSignature(_read_channels(spec) | _write_channels(spec))


def axi4_lite(address_bits: int) -> BusSignature:
    """All five channels of AXI4-Lite with 32 bits of data."""
    return BusSignature(
        {
            **_lite_address("aw", address_bits),
            "wvalid": Out(1),
            "wready": In(1),
            "wdata": Out(LITE_DATA_BITS),
            "wstrb": Out(LITE_DATA_BITS // 8),
            "bvalid": In(1),
            "bready": Out(1),
            "bresp": In(2),
            **_lite_address("ar", address_bits),
            "rvalid": In(1),
            "rready": Out(1),
            "rdata": In(LITE_DATA_BITS),
            "rresp": In(2),
        }
    )


def _lite_address(channel: str, address_bits: int) -> dict[str, Member]:
    return {
        f"{channel}valid": Out(1),
        f"{channel}ready": In(1),
        f"{channel}addr": Out(address_bits),
        f"{channel}prot": Out(3),
    }


def _read_channels(spec: AxiSpec) -> dict[str, Member]:
    return {**_address(spec, "ar"), **_response("r"), "rdata": In(spec.data_bits), "rlast": In(1)}


def _write_channels(spec: AxiSpec) -> dict[str, Member]:
    return {
        **_address(spec, "aw"),
        "wvalid": Out(1),
        "wready": In(1),
        "wdata": Out(spec.data_bits),
        "wstrb": Out(spec.beat_bytes),
        "wlast": Out(1),
        **_response("b"),
    }


def _address(spec: AxiSpec, channel: str) -> dict[str, Member]:
    widths = {"valid": 1, "id": 1, "addr": spec.address_bits, "len": 8, "size": 3, "burst": 2, "cache": 4, "prot": 3}
    return {**{channel + name: Out(width) for name, width in widths.items()}, f"{channel}ready": In(1)}


def _response(channel: str) -> dict[str, Member]:
    return {f"{channel}valid": In(1), f"{channel}ready": Out(1), f"{channel}id": In(1), f"{channel}resp": In(2)}
