from .host.outfeed_queue import IPUOutfeedMode as IPUOutfeedMode
from .host.outfeed_queue import IPUOutfeedQueue as IPUOutfeedQueue
