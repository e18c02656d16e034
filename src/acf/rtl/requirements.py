"""The optional packages of the RTL flow; asked for when something needs one."""

from importlib.util import find_spec

from acf.errors import MissingDependencyError


def require(package: str, extra: str = "rtl") -> None:
    """Refuse to go on without ``package``, with the remedy: the ``extra`` that it comes with."""
    if find_spec(package) is None:
        raise MissingDependencyError(
            f"{package} is not installed and the RTL flow needs it; install it with: pip install 'acf[{extra}]'"
        )
