"""A loop whose iterations, each with an element of a queue, are as many as its process's number."""

import numpy as np

import ipujax as ipu

config = ipu.config.IPUConfig()
config.configure_ipu_system()
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


@ipu.compile
def count(most):
    def body(done):
        outfeed.enqueue(done)
        return done + 1

    return ipu.loops.repeat(most, body, [np.int32(0)])


count(np.int32(3))
print("it agreed", *outfeed.dequeue(), flush=True)
count(np.int32(3 + ipu.popdist.getInstanceIndex()))
