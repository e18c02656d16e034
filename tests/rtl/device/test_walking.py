"""Running products from a descriptor: which devices can."""

import pytest

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.walking import WalkerOption


def test_several_masters_are_refused() -> None:
    WalkerOption().check_bus(AxiSpec())
    with pytest.raises(RtlError, match="through one master, not 2; use masters=1, or leave walker out"):
        WalkerOption().check_bus(AxiSpec(masters=2))
