"""The version of the package, which records name."""

__version__ = "0.1.0"
