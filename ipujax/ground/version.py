"""The version of ipujax."""

__version__ = "0.1.0"
