// Short vectors, and the intrinsics in scalar form.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <poplar/HalfFloat.hpp>

typedef float float2 __attribute__((vector_size(8)));
typedef float float4 __attribute__((vector_size(16)));
typedef int int2 __attribute__((vector_size(8)));
typedef int int4 __attribute__((vector_size(16)));
typedef unsigned uint2 __attribute__((vector_size(8)));
typedef unsigned uint4 __attribute__((vector_size(16)));
typedef short short2 __attribute__((vector_size(4)));
typedef short short4 __attribute__((vector_size(8)));
typedef unsigned short ushort2 __attribute__((vector_size(4)));
typedef unsigned short ushort4 __attribute__((vector_size(8)));
typedef signed char char2 __attribute__((vector_size(2)));
typedef signed char char4 __attribute__((vector_size(4)));
typedef unsigned char uchar2 __attribute__((vector_size(2)));
typedef unsigned char uchar4 __attribute__((vector_size(4)));

template <int Width> struct alignas(2 * Width) half_vector {
  half element[Width];
  half &operator[](int index) { return element[index]; }
  const half &operator[](int index) const { return element[index]; }
#define IPUJAX_ELEMENTWISE(OP)                                                                     \
  friend half_vector operator OP(half_vector a, const half_vector &b) {                            \
    for (int i = 0; i < Width; ++i)                                                                \
      a[i] = a[i] OP b[i];                                                                         \
    return a;                                                                                      \
  }                                                                                                \
  friend half_vector operator OP(half_vector a, half b) {                                          \
    for (int i = 0; i < Width; ++i)                                                                \
      a[i] = a[i] OP b;                                                                            \
    return a;                                                                                      \
  }                                                                                                \
  half_vector &operator OP##=(const half_vector & b) { return *this = *this OP b; }
  IPUJAX_ELEMENTWISE(+)
  IPUJAX_ELEMENTWISE(-)
  IPUJAX_ELEMENTWISE(*)
  IPUJAX_ELEMENTWISE(/)
#undef IPUJAX_ELEMENTWISE
};
typedef half_vector<2> half2;
typedef half_vector<4> half4;
typedef half_vector<8> half8;

// What the chip computes in one instruction, one number or short vector at a time.
namespace ipu {
#define IPUJAX_UNARY(NAME, EXPRESSION)                                                             \
  inline float NAME(float x) { return EXPRESSION; }                                                \
  inline half NAME(half x) { return half(NAME(float(x))); }                                        \
  inline float2 NAME(float2 v) { return float2{NAME(v[0]), NAME(v[1])}; }                          \
  template <int Width> half_vector<Width> NAME(half_vector<Width> v) {                             \
    for (int i = 0; i < Width; ++i)                                                                \
      v[i] = NAME(v[i]);                                                                           \
    return v;                                                                                      \
  }
IPUJAX_UNARY(exp, std::exp(x))
IPUJAX_UNARY(exp2, std::exp2(x))
IPUJAX_UNARY(ln, std::log(x))
IPUJAX_UNARY(log, std::log(x))
IPUJAX_UNARY(log2, std::log2(x))
IPUJAX_UNARY(tanh, std::tanh(x))
IPUJAX_UNARY(sigm, 1.0f / (1.0f + std::exp(-x)))
IPUJAX_UNARY(sqrt, std::sqrt(x))
IPUJAX_UNARY(rsqrt, 1.0f / std::sqrt(x))
IPUJAX_UNARY(relu, x > 0.0f ? x : 0.0f)
IPUJAX_UNARY(cos, std::cos(x))
IPUJAX_UNARY(sin, std::sin(x))
IPUJAX_UNARY(fabs, std::fabs(x))
IPUJAX_UNARY(floor, std::floor(x))
IPUJAX_UNARY(ceil, std::ceil(x))
IPUJAX_UNARY(rint, std::rint(x))
IPUJAX_UNARY(round, std::round(x))
IPUJAX_UNARY(trunc, std::trunc(x))
#undef IPUJAX_UNARY

#define IPUJAX_BINARY(NAME, EXPRESSION)                                                            \
  inline float NAME(float x, float y) { return EXPRESSION; }                                       \
  inline half NAME(half x, half y) { return half(NAME(float(x), float(y))); }                      \
  inline float2 NAME(float2 a, float2 b) { return float2{NAME(a[0], b[0]), NAME(a[1], b[1])}; }    \
  template <int Width>                                                                             \
  half_vector<Width> NAME(half_vector<Width> a, const half_vector<Width> &b) {                     \
    for (int i = 0; i < Width; ++i)                                                                \
      a[i] = NAME(a[i], b[i]);                                                                     \
    return a;                                                                                      \
  }
IPUJAX_BINARY(max, std::fmax(x, y))
IPUJAX_BINARY(min, std::fmin(x, y))
IPUJAX_BINARY(absadd, std::fabs(x) + std::fabs(y))
IPUJAX_BINARY(fmax, std::fmax(x, y))
IPUJAX_BINARY(fmin, std::fmin(x, y))
IPUJAX_BINARY(pow, std::pow(x, y))
#undef IPUJAX_BINARY

// The sum of a short vector's elements.
inline float sum(float2 v) { return v[0] + v[1]; }
inline float sum(half2 v) { return float(v[0]) + float(v[1]); }
inline float2 sum(half4 v) {
  return float2{float(v[0]) + float(v[1]), float(v[2]) + float(v[3])};
}
// The value within the bounds that a short vector holds.
inline float clamp(float x, float2 bounds) {
  return std::fmin(std::fmax(x, bounds[0]), bounds[1]);
}
inline unsigned clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline unsigned popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned bitrev8(unsigned x) {
  unsigned reversed = 0;
  for (int byte = 0; byte < 32; byte += 8)
    for (int bit = 0; bit < 8; ++bit)
      reversed |= ((x >> (byte + bit)) & 1) << (byte + 7 - bit);
  return reversed;
}
template <class Value> Value fma(Value x, Value y, Value z) { return Value(x * y + z); }

// Loads and stores that step a pointer on, by as many elements of its own.
template <class Value> Value load_postinc(const Value **pointer, int step) {
  const Value value = **pointer;
  *pointer += step;
  return value;
}
template <class Value> void store_postinc(Value **pointer, Value value, int step) {
  **pointer = value;
  *pointer += step;
}
} // namespace ipu

// A codelet that uses another `__builtin_ipu_*` is refused by its name.
#define __builtin_ipu_exp ipu::exp
#define __builtin_ipu_exp2 ipu::exp2
#define __builtin_ipu_ln ipu::ln
#define __builtin_ipu_log2 ipu::log2
#define __builtin_ipu_tanh ipu::tanh
#define __builtin_ipu_sigm ipu::sigm
#define __builtin_ipu_sqrt ipu::sqrt
#define __builtin_ipu_rsqrt ipu::rsqrt
#define __builtin_ipu_relu ipu::relu
#define __builtin_ipu_max ipu::max
#define __builtin_ipu_min ipu::min
#define __builtin_ipu_absadd ipu::absadd
#define __builtin_ipu_clamp ipu::clamp
#define __builtin_ipu_clz ipu::clz
#define __builtin_ipu_popc ipu::popc
#define __builtin_ipu_bitrev8 ipu::bitrev8
