"""The errors ACF raises on bad input: one line each, with the value, the rule and the remedy."""


class AcfError(Exception):
    """Base of every error ACF raises on purpose; the command line turns it into exit code 2."""


class ArgumentError(AcfError, TypeError):
    """An argument is of another kind than the function takes."""


class SparsityError(AcfError, ValueError):
    """A sparsity specification or a model does not allow what was asked."""


class TopologyError(AcfError, ValueError):
    """A topology, an optimizer or a checkpoint does not fit the model it is used with."""


class LostRankError(AcfError, RuntimeError):
    """Another process of a distributed run was killed, or cannot be reached any more."""


class TraceError(AcfError, ValueError):
    """A trace, or a file that should be one, is not usable."""


class ArchitectureError(AcfError, ValueError):
    """An architecture name, configuration file or Spec is not usable."""


class RtlError(AcfError, ValueError):
    """A hardware description, a tool of its flow or what was asked of them is not usable."""


class ReportError(AcfError, ValueError):
    """A report cannot be made of what was given."""


class DataError(AcfError, ValueError):
    """A data set, or the folder that should hold it, is not usable."""


class FileError(AcfError, OSError):
    """A file cannot be written where it was asked for, or is not what it should be."""


class PluginError(AcfError, ImportError):
    """An extension from outside the package cannot be loaded, or is not what its entry point announces."""


class SweepError(AcfError, ValueError):
    """A sweep, or the file that should hold one, is not usable."""


class MissingDependencyError(AcfError, ImportError):
    """An optional package is needed for what was asked and is not installed."""


def require_kind(value: object, kind: type | tuple[type, ...], name: str, remedy: str) -> None:
    """Refuse an argument that is no ``kind``.

    >>> require_kind(3, str, "label", "pass a text")
    Traceback (most recent call last):
    acf.errors.ArgumentError: label is 3, of type int; pass a text
    """
    if not isinstance(value, kind):
        shown = " ".join(repr(value)[:60].split())
        raise ArgumentError(f"{name} is {shown}, of type {type(value).__name__}; {remedy}")
