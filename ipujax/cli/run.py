"""`ipujax run`: what `ipurun` does."""

from ipujax.distribution.launch import main as main
