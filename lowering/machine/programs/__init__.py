"""The cost of a whole program: the steps of each IPU over time, and its memory meanwhile."""
