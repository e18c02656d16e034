"""Optional packages of the RTL flow."""

import pytest

from acf.errors import MissingDependencyError
from acf.rtl.tools import requirements


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(
        MissingDependencyError, match=r"amaranth is not installed .* pip install 'adaptive-compute-fabric\[rtl\]'"
    ):
        requirements.require("amaranth")
