// How much stack functions of the chip's code take: the host's needs none of it said.
#pragma once

#define DEF_STACK_USAGE(BYTES, FUNCTION) static_assert((BYTES) >= 0, "bytes of a stack")
#define DEF_STACK_SIZE_OWN(BYTES, FUNCTION) DEF_STACK_USAGE(BYTES, FUNCTION)
