"""Command line tools: `ipujax`, and the gc-info, gc-inventory and gc-monitor that it has too.

None of them loads JAX, and only those that show reports load NumPy, so that they answer at once.
"""
