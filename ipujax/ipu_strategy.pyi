from .strategies.ipu_strategy import IPUStrategy as IPUStrategy
from .strategies.ipu_strategy import IPUStrategyV1 as IPUStrategyV1
