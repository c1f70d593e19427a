"""What a backward pass keeps of the forward pass: as few bytes as it can do with."""
