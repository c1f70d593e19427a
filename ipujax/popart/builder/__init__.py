"""Graphs of ONNX, built by hand."""

from ipujax.popart.builder.builder import Builder as Builder
