from .host.infeed_queue import IPUInfeedQueue as IPUInfeedQueue
