from .host.dataset_benchmark import dataset_benchmark as dataset_benchmark
from .host.dataset_benchmark import infeed_benchmark as infeed_benchmark
