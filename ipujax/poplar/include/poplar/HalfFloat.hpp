// half: IEEE's 16 bits, computed in float and rounded to the nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

class half {
public:
  half() = default;
  half(float value) : bits(encode(value)) {}
  half(double value) : half(float(value)) {}
  half(int value) : half(float(value)) {}
  half(unsigned value) : half(float(value)) {}
  half(long value) : half(float(value)) {}
  half(unsigned long value) : half(float(value)) {}
  operator float() const { return decode(bits); }

  half &operator+=(half other) { return *this = half(float(*this) + float(other)); }
  half &operator-=(half other) { return *this = half(float(*this) - float(other)); }
  half &operator*=(half other) { return *this = half(float(*this) * float(other)); }
  half &operator/=(half other) { return *this = half(float(*this) / float(other)); }
  friend half operator-(half value) { return half(-float(value)); }
  friend half operator+(half a, half b) { return a += b; }
  friend half operator-(half a, half b) { return a -= b; }
  friend half operator*(half a, half b) { return a *= b; }
  friend half operator/(half a, half b) { return a /= b; }
#define IPUJAX_WITH_NUMBER(NUMBER, RESULT)                                                         \
  friend RESULT operator+(half a, NUMBER b) { return RESULT(float(a) + b); }                       \
  friend RESULT operator-(half a, NUMBER b) { return RESULT(float(a) - b); }                       \
  friend RESULT operator*(half a, NUMBER b) { return RESULT(float(a) * b); }                       \
  friend RESULT operator/(half a, NUMBER b) { return RESULT(float(a) / b); }                       \
  friend RESULT operator+(NUMBER a, half b) { return RESULT(a + float(b)); }                       \
  friend RESULT operator-(NUMBER a, half b) { return RESULT(a - float(b)); }                       \
  friend RESULT operator*(NUMBER a, half b) { return RESULT(a * float(b)); }                       \
  friend RESULT operator/(NUMBER a, half b) { return RESULT(a / float(b)); }
  IPUJAX_WITH_NUMBER(float, float)
  IPUJAX_WITH_NUMBER(double, double)
  IPUJAX_WITH_NUMBER(int, half)
  IPUJAX_WITH_NUMBER(unsigned, half)
#undef IPUJAX_WITH_NUMBER

private:
  std::uint16_t bits;

  static std::uint16_t encode(float value) {
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    const std::uint16_t sign = (word >> 16) & 0x8000;
    const float size = std::fabs(value);
    if (std::isnan(value))
      return sign | 0x7e00;
    if (size >= 65520.0f) // halfway between the largest number and the next power of two
      return sign | 0x7c00;
    if (size < 6.103515625e-05f) // subnormal: a whole number of 2^-24
      return sign | std::uint16_t(std::nearbyint(size * 16777216.0f));
    const std::uint32_t magnitude = (word & 0x7fffffff) - (112u << 23);
    return sign | std::uint16_t((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13);
  }

  static float decode(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t(bits & 0x8000) << 16;
    const std::uint32_t exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
    if (exponent == 0) {
      const float size = float(fraction) * 5.9604644775390625e-08f;
      return sign ? -size : size;
    }
    const std::uint32_t word =
        sign | ((exponent == 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
};

namespace poplar {
using ::half;
}
