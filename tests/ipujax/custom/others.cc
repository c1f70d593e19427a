// What is exported by libraries, and is no XLA FFI handler.

#include <cstdlib>

extern "C" {
int Data = 5;
void Nothing() {}
double Sum(double a, double b) { return a + b; }
void Writes(long* words) { words[0] = words[1] = 7; }
void Aborts() { std::abort(); }
void Ends() { std::exit(0); }
}
