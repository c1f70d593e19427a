"""The implementations of the operators of `ipujax`'s public modules."""
