"""Models of torchvision, transformers and timm, run by PyTorch itself and as functions of JAX."""
