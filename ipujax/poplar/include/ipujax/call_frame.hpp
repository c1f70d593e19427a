// XLA's calls: their operands and results, checked before anything is read or written.
//
// A program that was loaded from a file may call a codelet with anything.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <poplar/HalfFloat.hpp>
#include <xla/ffi/api/c_api.h>

namespace ipujax {

template <class Value> constexpr XLA_FFI_DataType dataType() {
  using Number = std::remove_cv_t<Value>;
  if constexpr (std::is_same_v<Number, half>)
    return XLA_FFI_DataType_F16;
  else if constexpr (std::is_same_v<Number, bool>)
    return XLA_FFI_DataType_PRED;
  else if constexpr (std::is_same_v<Number, float>)
    return XLA_FFI_DataType_F32;
  else if constexpr (std::is_enum_v<Number>)
    return dataType<std::underlying_type_t<Number>>();
  else if constexpr (!std::is_integral_v<Number>)
    return XLA_FFI_DataType_INVALID;
  else if constexpr (sizeof(Number) == 1)
    return std::is_signed_v<Number> ? XLA_FFI_DataType_S8 : XLA_FFI_DataType_U8;
  else if constexpr (sizeof(Number) == 2)
    return std::is_signed_v<Number> ? XLA_FFI_DataType_S16 : XLA_FFI_DataType_U16;
  else if constexpr (sizeof(Number) == 4)
    return std::is_signed_v<Number> ? XLA_FFI_DataType_S32 : XLA_FFI_DataType_U32;
  else
    return XLA_FFI_DataType_INVALID;
}

// An operand or result: [count, size], of a scalar field [count].
struct Buffer {
  char *data = nullptr;
  std::int64_t count = 0, size = 0;
};

inline XLA_FFI_Error *makeError(XLA_FFI_CallFrame *frame, const std::string &message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = XLA_FFI_Error_Code_INVALID_ARGUMENT;
  return frame->api->XLA_FFI_Error_Create(&args);
}

inline bool answerMetadata(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Extension_Base *extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata)
    return false;
  XLA_FFI_Metadata *metadata = reinterpret_cast<XLA_FFI_Metadata_Extension *>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  metadata->state_type_id = XLA_FFI_TypeId{0};
  return true;
}

// Takes the operands and results of a call one after the other. What does not fit is remembered;
// then all further ones are empty.
class CallReader {
public:
  explicit CallReader(XLA_FFI_CallFrame *frame) : frame(frame) {}

  Buffer takeOperand(XLA_FFI_DataType type) {
    const XLA_FFI_Args &all = frame->args;
    const bool exists = operand < all.size && all.types[operand] == XLA_FFI_ArgType_BUFFER;
    return take(exists ? all.args[operand++] : nullptr, type);
  }
  Buffer takeResult(XLA_FFI_DataType type) {
    const XLA_FFI_Rets &all = frame->rets;
    const bool exists = result < all.size && all.types[result] == XLA_FFI_RetType_BUFFER;
    return take(exists ? all.rets[result++] : nullptr, type);
  }
  // The sizes of the rows of one field, together `total`.
  std::vector<std::int64_t> takeRowSizes(std::int64_t total) {
    const Buffer given = takeOperand(XLA_FFI_DataType_S32);
    if (!require(given.size == 1))
      return {};
    const auto *first = reinterpret_cast<std::int32_t *>(given.data);
    std::vector<std::int64_t> sizes(first, first + given.count);
    for (const std::int64_t size : sizes) {
      require(size >= 0);
      total -= size;
    }
    require(total == 0);
    return sizes;
  }
  // The attributes in the order of their names. Those that do not fit are 0 or "".
  std::int64_t takeNumber() {
    const auto *scalar = static_cast<XLA_FFI_Scalar *>(takeAttribute(XLA_FFI_AttrType_SCALAR));
    return require(scalar && scalar->dtype == XLA_FFI_DataType_S64)
               ? *static_cast<std::int64_t *>(scalar->value)
               : 0;
  }
  std::string takeText() {
    const auto *text = static_cast<XLA_FFI_ByteSpan *>(takeAttribute(XLA_FFI_AttrType_STRING));
    return require(text) ? std::string(text->ptr, text->len) : "";
  }

  bool require(bool condition) { return fits = fits && condition; }
  // Whether all have been taken, and fit.
  bool isDone() const {
    return fits && operand == frame->args.size && result == frame->rets.size &&
           attribute == frame->attrs.size;
  }

private:
  XLA_FFI_CallFrame *frame;
  std::int64_t operand = 0, result = 0, attribute = 0;
  bool fits = true;

  void *takeAttribute(XLA_FFI_AttrType type) {
    const XLA_FFI_Attrs &all = frame->attrs;
    const bool exists = attribute < all.size && all.types[attribute] == type;
    return exists ? all.attrs[attribute++] : nullptr;
  }
  Buffer take(void *given, XLA_FFI_DataType type) {
    const auto *buffer = static_cast<XLA_FFI_Buffer *>(given);
    const bool isKnown = type != XLA_FFI_DataType_INVALID;
    if (!require(isKnown && buffer && buffer->dtype == type) ||
        !require(buffer->rank == 1 || buffer->rank == 2))
      return {};
    return {static_cast<char *>(buffer->data), buffer->dims[0],
            buffer->rank == 1 ? 1 : buffer->dims[1]};
  }
};

} // namespace ipujax
