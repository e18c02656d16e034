"""The optional packages of the RTL flow; checked when something needs one."""

from importlib.util import find_spec

from acf.errors import MissingDependencyError

DISTRIBUTION = "adaptive-compute-fabric"
"""The name to install by; ``acf`` on PyPI is another project."""


def require(*packages: str, extra: str = "rtl") -> None:
    """Refuse to go on without ``packages``, with the remedy: the ``extra`` that they come with."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingDependencyError(
                f"{package} is not installed and the RTL flow needs it; "
                f"install it with: pip install '{DISTRIBUTION}[{extra}]'"
            )
