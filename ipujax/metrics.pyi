from .operators.metrics import Metric as Metric
from .operators.metrics import accuracy as accuracy
from .operators.metrics import mean as mean
from .operators.metrics import mean_squared_error as mean_squared_error
from .operators.metrics import precision as precision
from .operators.metrics import recall as recall
from .operators.metrics import recall_at_k as recall_at_k
from .operators.metrics import root_mean_squared_error as root_mean_squared_error
