"""Command line tools that show the virtual machine: gc-info, gc-inventory and gc-monitor.

They load neither JAX nor the compiler, so that they answer at once.
"""
