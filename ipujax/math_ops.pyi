from .operators.math import serialized_matmul as serialized_matmul
