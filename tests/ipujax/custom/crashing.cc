// A library that ends the process that loads it.

#include <cstdlib>

__attribute__((constructor)) static void Load() { std::abort(); }

extern "C" void Negate() {}
