"""PopART: ONNX models on virtual IPUs, run and trained."""
