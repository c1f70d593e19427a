"""A program that is another one in each process."""

import numpy as np

import ipujax as ipu

index = ipu.popdist.getInstanceIndex()


@ipu.compile
def add(x):
    return x * 2 + index


print("it ran", add(np.float32(3)))
