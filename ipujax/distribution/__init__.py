"""Programs of several processes: how they are started, what each knows of itself, how they meet."""
