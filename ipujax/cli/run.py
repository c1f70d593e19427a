"""`ipujax run`: the same command as `ipurun`."""

from ipujax.distribution import build_launch_parser as build_parser
from ipujax.distribution import main as main

__all__ = ["build_parser", "main"]
