"""From the user's function to something that runs: traced, lowered, compiled, called."""
