from .operators.reduce_scatter import reduce_scatter as reduce_scatter
