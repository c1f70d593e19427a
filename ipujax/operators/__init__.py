"""What the operators of the seed's modules share, and what does their work."""
