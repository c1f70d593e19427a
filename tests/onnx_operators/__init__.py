"""ONNX's own cases of its operators, through `from_onnx` under `ipu.compile`."""
