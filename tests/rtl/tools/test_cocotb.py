"""What cocotb needs of Verilator."""

import pytest

from acf.rtl.tools.cocotb import CocotbUnavailableError, check_verilator


def test_a_verilator_that_is_too_old_for_cocotb_is_named() -> None:
    with pytest.raises(CocotbUnavailableError, match=r"cocotb needs Verilator 5\.036, and this is 5\.006; install"):
        check_verilator("Verilator 5.006 2023-01-22 rev (Debian 5.006-3)")
    check_verilator("Verilator 5.040 2025-08-30 rev v5.040")
