"""The cost of one kernel: its operations are listed, laid out on tiles, timed and added up."""
