from .operators.statistics_ops import fixed_width_bins as fixed_width_bins
from .operators.statistics_ops import histogram as histogram
from .operators.statistics_ops import histogram_update as histogram_update
