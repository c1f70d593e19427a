// What a library for Poplar says of itself.

#include <cstdint>

extern "C" {
int32_t custom_op_api_level = 5;
void Build() {}
}
