from .driver.comparison import Comparison as Comparison
from .driver.comparison import Row as Row
from .driver.comparison import compare as compare
