from .operators.statistics import fixed_width_bins as fixed_width_bins
from .operators.statistics import histogram as histogram
from .operators.statistics import histogram_update as histogram_update
