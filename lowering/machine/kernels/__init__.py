"""What one kernel costs: its operations listed, laid out on tiles, timed, and kept account of."""
