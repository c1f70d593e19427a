"""The builder of ONNX graphs, node by node."""

from ipujax.popart.builder.builder import Builder as Builder
