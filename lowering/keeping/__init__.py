"""The choice of what a backward pass keeps of the forward pass: the fewest bytes."""
