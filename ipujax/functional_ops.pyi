from .operators.functional import outlined_function as outlined_function
