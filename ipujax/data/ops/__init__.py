"""Data set wrappers."""

from ipujax.data.ops import dataset_ops as dataset_ops
