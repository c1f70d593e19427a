"""PyTorch's own database of operators, run through the front end and compared with PyTorch."""
