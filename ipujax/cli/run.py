"""`ipujax run`: the same command as `ipurun`."""

from ipujax.distribution import main as main
