from .operators.random import dropout as dropout
