"""Reports under the names of Graphcore's `pva`: what `ipujax.pva` gives out."""
