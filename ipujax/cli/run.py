"""`ipujax run`: the same command as `ipurun`."""

from ipujax.distribution.launch import main as main
