"""Data sets, under the name that the original had for them."""

from ipujax.data import ops as ops
