from .operators.all_to_all import all_gather as all_gather
from .operators.all_to_all import all_to_all as all_to_all
