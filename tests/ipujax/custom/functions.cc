// The functions that the tests of custom operations call.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;
using FloatsOut = ffi::ResultBuffer<ffi::F32>;
using Ints = ffi::Buffer<ffi::S32>;
using IntsOut = ffi::ResultBuffer<ffi::S32>;

static void Add(const Floats& x, float more, FloatsOut& y) {
  for (std::size_t i = 0; i < x.element_count(); ++i)
    y->typed_data()[i] = x.typed_data()[i] + more;
}

// Three inputs, three outputs: x + 1, y + 2, z + 3.
static ffi::Error CountUp(std::string_view, Floats x, Floats y, Floats z, FloatsOut a, FloatsOut b,
                          FloatsOut c) {
  Add(x, 1, a);
  Add(y, 2, b);
  Add(z, 3, c);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Build, CountUp,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());

// a + 6, b / 2 (integers), and the sum of both results.
static ffi::Error Mixed(std::string_view, Floats a, Ints b, FloatsOut x, IntsOut y, FloatsOut sum) {
  float total = 0;
  for (std::size_t i = 0; i < a.element_count(); ++i)
    total += x->typed_data()[i] = a.typed_data()[i] + 6;
  for (std::size_t i = 0; i < b.element_count(); ++i)
    total += y->typed_data()[i] = b.typed_data()[i] / 2;
  sum->typed_data()[0] = total;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Callback, Mixed,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<Floats>()
                                  .Arg<Ints>()
                                  .Ret<Floats>()
                                  .Ret<Ints>()
                                  .Ret<Floats>());

// Its gradients: of a the sum's and x's, of b (integers) what nobody reads. The gradient of the
// integers y must be zeros.
static ffi::Error MixedGrad(std::string_view, Floats dx, Ints dy, Floats dsum, Floats, Ints, Floats,
                            Floats, Ints, FloatsOut da, IntsOut db) {
  for (std::size_t i = 0; i < dy.element_count(); ++i) {
    if (dy.typed_data()[i]) return ffi::Error::InvalidArgument("integers have a gradient");
    db->typed_data()[i] = 7;
  }
  for (std::size_t i = 0; i < dx.element_count(); ++i)
    da->typed_data()[i] = dx.typed_data()[i] + dsum.typed_data()[0];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Callback_grad, MixedGrad,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<Floats>()
                                  .Arg<Ints>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Ints>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Ints>()
                                  .Ret<Floats>()
                                  .Ret<Ints>());

// p = x * y * z; the attribute of its gradients is "double" for gradients of twice the size.
static ffi::Error Product(std::string_view, Floats x, Floats y, Floats z, FloatsOut p) {
  for (std::size_t i = 0; i < x.element_count(); ++i)
    p->typed_data()[i] = x.typed_data()[i] * y.typed_data()[i] * z.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Product3, Product,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>());

static void Part(std::string_view attributes, const Floats& dp, const Floats& p, const Floats& over,
                 FloatsOut& gradient) {
  const float factor = attributes == "double" ? 2 : 1;
  for (std::size_t i = 0; i < dp.element_count(); ++i)
    gradient->typed_data()[i] =
        factor * dp.typed_data()[i] * p.typed_data()[i] / over.typed_data()[i];
}

// Gradients for inputs 2 and 0, in this order.
static ffi::Error ProductGrad(std::string_view attributes, Floats dp, Floats p, Floats x, Floats,
                              Floats z, FloatsOut dz, FloatsOut dx) {
  Part(attributes, dp, p, z, dz);
  Part(attributes, dp, p, x, dx);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Product3_grad, ProductGrad,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());

static auto SeparateBinding() {
  return ffi::Ffi::Bind()
      .Attr<std::string_view>("attributes")
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Ret<Floats>();
}
static ffi::Error Grad0(std::string_view attributes, Floats dp, Floats p, Floats x, Floats, Floats,
                        FloatsOut out) {
  Part(attributes, dp, p, x, out);
  return ffi::Error::Success();
}
static ffi::Error Grad1(std::string_view attributes, Floats dp, Floats p, Floats, Floats y, Floats,
                        FloatsOut out) {
  Part(attributes, dp, p, y, out);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Product3_grad_0, Grad0, SeparateBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(Product3_grad_1, Grad1, SeparateBinding());

// -x, of whatever float16 or float32: flips each element's sign bit. Its gradient is -dy.
static ffi::Error Flip(const ffi::AnyBuffer& x, ffi::Result<ffi::AnyBuffer>& y) {
  const std::size_t count = x.element_count();
  if (x.element_type() == ffi::F32) {
    const auto* from = static_cast<const std::uint32_t*>(x.untyped_data());
    auto* to = static_cast<std::uint32_t*>(y->untyped_data());
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] ^ 0x80000000u;
  } else if (x.element_type() == ffi::F16) {
    const auto* from = static_cast<const std::uint16_t*>(x.untyped_data());
    auto* to = static_cast<std::uint16_t*>(y->untyped_data());
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] ^ 0x8000u;
  } else {
    return ffi::Error::InvalidArgument("Negate takes float16 and float32");
  }
  return ffi::Error::Success();
}
static ffi::Error NegateIt(std::string_view, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y) {
  return Flip(x, y);
}
static ffi::Error NegateGrad(std::string_view, ffi::AnyBuffer dy, ffi::AnyBuffer, ffi::AnyBuffer,
                             ffi::Result<ffi::AnyBuffer> dx) {
  return Flip(dy, dx);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Negate, NegateIt,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(Negate_grad, NegateGrad,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("attributes")
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

// The characters of its attribute, then zeros.
static ffi::Error Spell(std::string_view attributes, IntsOut out) {
  for (std::size_t i = 0; i < out->element_count(); ++i)
    out->typed_data()[i] = i < attributes.size() ? attributes[i] : 0;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Letters, Spell, ffi::Ffi::Bind().Attr<std::string_view>("attributes").Ret<Ints>());

// No results: adds its input to what `told` gives.
static std::atomic<std::int32_t> heard{0};
static ffi::Error Listen(std::string_view, Ints x) {
  for (std::size_t i = 0; i < x.element_count(); ++i) heard += x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Tell, Listen, ffi::Ffi::Bind().Attr<std::string_view>("attributes").Arg<Ints>());
extern "C" std::int32_t told() { return heard.exchange(0); }
