// Runs the vertices of one type as one call of XLA, and says what fields the type has.
//
// The glue below a codelet's text defines, for each vertex type, a class `Fields` with
// `using Type = ...` and `visit(vertex, function)`, which calls `function(name, field)` for each
// public field; all else follows from the fields' types.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <poplar/Vertex.hpp>
#include <xla/ffi/api/c_api.h>

// Codelets with short vectors are compiled with checks of alignment, which call a handler before an
// access that would fail on the chip. It returns to where `MisalignedAccess` waits.
namespace ipujax {
inline thread_local std::jmp_buf waiting;
inline thread_local const char *misaligned = nullptr;
} // namespace ipujax
extern "C" __attribute__((used)) void
__ubsan_handle_type_mismatch_v1_abort(void *, void *address) {
  ipujax::misaligned = static_cast<const char *>(address);
  std::longjmp(ipujax::waiting, 1);
}

namespace ipujax {

using poplar::Access;
using poplar::Edge;

constexpr std::size_t GUARD_BYTES = 16;
constexpr char GUARD = char(0xa5);

template <class Value> std::string typeName() {
  using Number = std::remove_cv_t<Value>;
  if constexpr (std::is_enum_v<Number>)
    return typeName<std::underlying_type_t<Number>>();
  else if constexpr (std::is_same_v<Number, half>)
    return "HALF";
  else if constexpr (std::is_same_v<Number, bool>)
    return "BOOL";
  else if constexpr (std::is_same_v<Number, char>)
    return "CHAR";
  else if constexpr (std::is_same_v<Number, float>)
    return "FLOAT";
  else if constexpr (std::is_same_v<Number, double>)
    return "DOUBLE";
  else if constexpr (std::is_integral_v<Number>) {
    const char *sizes[] = {"", "CHAR", "SHORT", "", "INT", "", "", "", "LONGLONG"};
    if (sizeof(Number) == 1)
      return std::is_signed_v<Number> ? "SIGNED_CHAR" : "UNSIGNED_CHAR";
    return std::string(std::is_signed_v<Number> ? "" : "UNSIGNED_") + sizes[sizeof(Number)];
  } else
    return "";
}

// What is connected with tensors: rank 0, 1, or 2 for fields whose elements are vectors.
template <class Field> struct Connected : std::false_type {};
struct IsConnected : std::true_type {
  static constexpr bool hasScalarRows = false, isPlain = false;
};
template <class Value, Access Kind> struct Connected<Edge<Value, Kind>> : IsConnected {
  using Element = Value;
  static constexpr int rank = 0;
  static constexpr Access access = Kind;
  static constexpr std::size_t alignment = alignof(Value);
};
template <class Value, poplar::VectorLayout Layout, unsigned Alignment, bool Interleaved,
          Access Kind>
struct Connected<Edge<poplar::Vector<Value, Layout, Alignment, Interleaved>, Kind>>
    : IsConnected {
  using Element = Value;
  static constexpr int rank = 1;
  static constexpr Access access = Kind;
  static constexpr std::size_t alignment = Alignment;
};
template <class Value, poplar::VectorListLayout Layout, unsigned Alignment, bool Interleaved,
          Access Kind>
struct Connected<Edge<poplar::VectorList<Value, Layout, Alignment, Interleaved>, Kind>>
    : IsConnected {
  using Row = Edge<poplar::Vector<Value, poplar::VectorLayout::SPAN, Alignment, Interleaved>, Kind>;
  using Element = Value;
  static constexpr int rank = 2;
  static constexpr Access access = Kind;
  static constexpr std::size_t alignment = Alignment;
};
// A vector of fields, or, of plain elements, what a vertex reads and writes as its own.
template <class Inner, poplar::VectorLayout Layout, unsigned Alignment, bool Interleaved,
          bool IsField>
struct ConnectedVector : Connected<Inner> {
  using Row = Inner;
  static constexpr int rank = 2;
  static constexpr bool hasScalarRows = Connected<Inner>::rank == 0;
};
template <class Inner, poplar::VectorLayout Layout, unsigned Alignment, bool Interleaved>
struct ConnectedVector<Inner, Layout, Alignment, Interleaved, false> : IsConnected {
  using Element = Inner;
  static constexpr int rank = 1;
  static constexpr Access access = Access::READ_WRITE;
  static constexpr std::size_t alignment = Alignment;
  static constexpr bool isPlain = true;
};
template <class Inner, poplar::VectorLayout Layout, unsigned Alignment, bool Interleaved>
struct Connected<poplar::Vector<Inner, Layout, Alignment, Interleaved>>
    : ConnectedVector<Inner, Layout, Alignment, Interleaved, Connected<Inner>::value> {};

template <class Text> std::string quote(const Text &text) {
  return '"' + std::string(text) + '"';
}

template <class Field>
void describePlain(std::string &text, std::size_t offset, const Field &value) {
  using Element = std::remove_all_extents_t<Field>;
  text += ", \"type\": " + quote(typeName<Element>());
  text += ", \"is_array\": " + std::to_string(std::is_array_v<Field>);
  text += ", \"bytes\": " + std::to_string(sizeof(Field));
  text += ", \"offset\": " + std::to_string(offset);
  text += ", \"default\": \"";
  char bytes[sizeof(Field)], digits[3];
  std::memcpy(bytes, &value, sizeof(Field));
  for (const char byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", unsigned(static_cast<unsigned char>(byte)));
    text += digits;
  }
  text += '"';
}

// JSON: a list of fields, each with its type, and how it is connected or its default.
template <class Fields> const char *describe() {
  static std::string text;
  typename Fields::Type vertex{};
  std::size_t offset = 0;
  text = "";
  Fields::visit(vertex, [&](const char *name, auto &field) {
    using Field = std::remove_reference_t<decltype(field)>;
    text += (text.empty() ? "[{\"name\": " : ", {\"name\": ") + quote(name);
    if constexpr (Connected<Field>::value) {
      using Traits = Connected<Field>;
      text += ", \"type\": " + quote(typeName<typename Traits::Element>());
      text += ", \"rank\": " + std::to_string(Traits::rank);
      text += ", \"access\": " + std::to_string(int(Traits::access));
      text += ", \"alignment\": " + std::to_string(Traits::alignment);
      text += std::string(", \"has_scalar_rows\": ") + (Traits::hasScalarRows ? "true" : "false");
      text += std::string(", \"is_plain\": ") + (Traits::isPlain ? "true" : "false");
    } else {
      static_assert(std::is_trivially_copyable_v<Field>,
                    "a field is connected (Input, Output, InOut) or plain data");
      describePlain(text, offset, field);
      offset += sizeof(Field);
    }
    text += '}';
  });
  text = text.empty() ? "[]" : text + ']';
  return text.c_str();
}

// The memory of one vertex: each region has guard bytes before and after it, and is aligned to no
// more than its field asks for.
class TileMemory {
public:
  struct Region {
    std::string name;
    std::size_t offset, bytes;
  };
  std::vector<Region> regions;

  void add(const char *name, std::size_t bytes, std::size_t alignment) {
    const std::size_t step = 2 * alignment;
    const std::size_t offset = (end + GUARD_BYTES + alignment - 1) / step * step + alignment;
    regions.push_back({name, offset, bytes});
    end = offset + bytes;
  }
  void allocate() {
    storage.assign(end + GUARD_BYTES + LARGEST_ALIGNMENT, GUARD);
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(storage.data()) % LARGEST_ALIGNMENT;
    base = storage.data() + (LARGEST_ALIGNMENT - beyond);
  }
  char *at(std::size_t region) { return base + regions[region].offset; }

  // The first field beyond whose end, or before whose begin, something was written; "" if none.
  std::string overwritten() const {
    std::size_t last = 0;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      for (std::size_t place = last; place < regions[i].offset; ++place)
        if (base[place] != GUARD)
          return i && place < last + GUARD_BYTES ? regions[i - 1].name : regions[i].name;
      last = regions[i].offset + regions[i].bytes;
    }
    for (std::size_t place = last; place < last + GUARD_BYTES; ++place)
      if (base[place] != GUARD)
        return regions.empty() ? "" : regions.back().name;
    return "";
  }

  // The field that an address belongs to; "" if none.
  std::string fieldAt(const char *address) {
    for (std::size_t i = 0; i < regions.size(); ++i)
      if (address >= at(i) && address < at(i) + regions[i].bytes)
        return regions[i].name;
    return "";
  }

private:
  static constexpr std::size_t LARGEST_ALIGNMENT = 64;
  std::vector<char> storage;
  char *base = nullptr;
  std::size_t end = 0;
};

// The sizes of the rows of each field: {1} for a scalar, {n} for a vector.
using RowSizes = std::vector<std::vector<std::int64_t>>;

// A vertex on its memory.
template <class Fields> class VertexRunner {
public:
  using Type = typename Fields::Type;
  Type vertex{};
  TileMemory memory;

  explicit VertexRunner(const RowSizes &sizes) {
    std::size_t number = 0;
    forConnected([&](const char *name, auto connected, auto &) {
      using Traits = decltype(connected);
      for (const std::int64_t size : sizes[number])
        memory.add(name, size * sizeof(typename Traits::Element), Traits::alignment);
      ++number;
    });
    memory.allocate();
    for (std::size_t region = 0; region < memory.regions.size(); ++region)
      std::memset(memory.at(region), 0, memory.regions[region].bytes);
    connect(sizes);
  }

  template <class Function> void forConnected(Function function) {
    Fields::visit(vertex, [&](const char *name, auto &field) {
      using Field = std::remove_reference_t<decltype(field)>;
      if constexpr (Connected<Field>::value)
        function(name, Connected<Field>{}, field);
    });
  }

  void copyPlain(char *state, bool toVertex) {
    Fields::visit(vertex, [&](const char *, auto &field) {
      using Field = std::remove_reference_t<decltype(field)>;
      if constexpr (!Connected<Field>::value) {
        if (toVertex)
          std::memcpy(const_cast<std::remove_const_t<Field> *>(&field), state, sizeof(Field));
        else
          std::memcpy(state, &field, sizeof(Field));
        state += sizeof(Field);
      }
    });
  }

  void compute() {
    if constexpr (std::is_base_of_v<poplar::MultiVertex, Type>)
      for (unsigned worker = 0; worker < poplar::MultiVertex::numWorkers(); ++worker)
        vertex.compute(worker);
    else
      vertex.compute();
  }

  // Runs `compute`; returns whether all of its accesses are aligned.
  bool computeAligned() {
    if (setjmp(waiting))
      return false;
    compute();
    return true;
  }

  // Worker cycles of a Vertex, tile cycles of the others, as the loops that `compute` runs say; -1
  // if that stops at an access that is not aligned.
  std::int64_t countLoops() {
    if (setjmp(waiting))
      return -1;
    std::uint64_t slowest = 0;
    if constexpr (std::is_base_of_v<poplar::MultiVertex, Type>)
      for (unsigned worker = 0; worker < poplar::MultiVertex::numWorkers(); ++worker) {
        poplar::loopSlots = 0;
        vertex.compute(worker);
        slowest = poplar::loopSlots > slowest ? poplar::loopSlots : slowest;
      }
    else {
      poplar::loopSlots = 0;
      vertex.compute();
      slowest = poplar::loopSlots;
    }
    return slowest * (std::is_base_of_v<poplar::Vertex, Type> ? 1 : 6);
  }

private:
  std::vector<std::vector<char>> rows; // the fields within fields of rank 2

  void connect(const RowSizes &sizes) {
    std::size_t number = 0, region = 0;
    forConnected([&](const char *, auto connected, auto &field) {
      using Traits = decltype(connected);
      using Element = typename Traits::Element;
      const auto &extents = sizes[number++];
      auto place = [&] { return reinterpret_cast<Element *>(memory.at(region++)); };
      if constexpr (Traits::rank == 0)
        field.connect(place());
      else if constexpr (Traits::rank == 1)
        field.connect(place(), extents[0]);
      else {
        using Row = typename Traits::Row;
        rows.emplace_back(extents.size() * sizeof(Row));
        Row *first = reinterpret_cast<Row *>(rows.back().data());
        for (std::size_t i = 0; i < extents.size(); ++i)
          new (first + i) Row;
        for (std::size_t i = 0; i < extents.size(); ++i)
          if constexpr (Connected<Row>::rank == 0)
            first[i].connect(place());
          else
            first[i].connect(place(), extents[i]);
        field.connect(first, extents.size());
      }
    });
  }
};

template <class Value, class = void> struct HasEstimate : std::false_type {};
template <class Value>
struct HasEstimate<Value, std::void_t<decltype(std::declval<const Value &>().getCycleEstimate())>>
    : std::true_type {};

// The cycles of a vertex with these sizes and plain fields, its elements being zero; -1: it does
// not say. `sizes` has, for each connected field, the number of its rows and the size of each.
template <class Fields>
std::int64_t estimate(const std::int64_t *sizes, const char *state, bool hasLoops) {
  RowSizes extents;
  typename Fields::Type probe{};
  Fields::visit(probe, [&](const char *, auto &field) {
    if constexpr (Connected<std::remove_reference_t<decltype(field)>>::value) {
      extents.emplace_back(sizes + 1, sizes + 1 + sizes[0]);
      sizes += 1 + sizes[0];
    }
  });
  VertexRunner<Fields> runner(extents);
  runner.copyPlain(const_cast<char *>(state), true);
  const typename Fields::Type &vertex = runner.vertex;
  if constexpr (HasEstimate<typename Fields::Type>::value)
    return std::int64_t(vertex.getCycleEstimate());
  return hasLoops ? runner.countLoops() : -1;
}

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

// The only attribute of a call: which vertices they are, for messages.
inline std::int64_t numberOfGroup(XLA_FFI_CallFrame *frame) {
  const auto *scalar = static_cast<XLA_FFI_Scalar *>(frame->attrs.attrs[0]);
  return *static_cast<std::int64_t *>(scalar->value);
}

// One operand of a call: [vertices or 1, bytes of a vertex].
struct Operand {
  char *data;
  std::int64_t count, bytes;
  Operand(void *buffer, std::size_t element) {
    const auto *given = static_cast<XLA_FFI_Buffer *>(buffer);
    data = static_cast<char *>(given->data), count = given->dims[0], bytes = element;
    for (std::int64_t i = 1; i < given->rank; ++i)
      bytes *= given->dims[i];
  }
  char *of(std::int64_t vertex) const { return data + (count == 1 ? 0 : vertex * bytes); }
};

// A vertex as it is before it runs: fields that are not public begin anew with each.
template <class Type, bool = std::is_copy_constructible_v<Type>> class VertexCopy {
public:
  explicit VertexCopy(const Type &vertex) : copy(vertex) {}
  void copyTo(Type &vertex) const {
    vertex.~Type();
    new (&vertex) Type(copy);
  }

private:
  Type copy;
};
template <class Type> class VertexCopy<Type, false> {
public:
  explicit VertexCopy(const Type &) {}
  void copyTo(Type &) const {}
};

// Operands: for each connected field what it holds and, at rank 2, the sizes of its rows; then, if
// there are plain fields, their bytes. Results: the written fields, then the plain fields' bytes.
template <class Fields> XLA_FFI_Error *run(XLA_FFI_CallFrame *frame) {
  if (answerMetadata(frame))
    return nullptr;
  typename Fields::Type probe{};
  RowSizes sizes;
  std::vector<Operand> operands, results;
  std::vector<bool> written;
  int argument = 0, result = 0;
  std::size_t stateBytes = 0;
  Fields::visit(probe, [&](const char *, auto &field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (Connected<Field>::value) {
      const std::size_t element = sizeof(typename Connected<Field>::Element);
      operands.emplace_back(frame->args.args[argument++], element);
      if constexpr (Connected<Field>::rank == 2) {
        const auto *rows = static_cast<XLA_FFI_Buffer *>(frame->args.args[argument++]);
        const auto *first = static_cast<std::int32_t *>(rows->data);
        sizes.emplace_back(first, first + rows->dims[0]);
      } else
        sizes.push_back({std::int64_t(operands.back().bytes / element)});
      written.push_back(Connected<Field>::access != Access::READ);
      if (written.back())
        results.emplace_back(frame->rets.rets[result++], element);
    } else
      stateBytes += sizeof(Field);
  });
  if (stateBytes) {
    operands.emplace_back(frame->args.args[argument++], 1);
    results.emplace_back(frame->rets.rets[result++], 1);
  }
  VertexRunner<Fields> runner(sizes);
  const VertexCopy<typename Fields::Type> atFirst(runner.vertex);
  auto copy = [&](std::size_t region, std::size_t rows, char *outside, bool inwards) {
    for (; rows; --rows, ++region) {
      const std::size_t bytes = runner.memory.regions[region].bytes;
      std::memcpy(inwards ? runner.memory.at(region) : outside,
                  inwards ? outside : runner.memory.at(region), bytes);
      outside += bytes;
    }
  };
  for (std::int64_t vertex = 0; vertex < results[0].count; ++vertex) {
    std::size_t region = 0, output = 0;
    atFirst.copyTo(runner.vertex);
    for (std::size_t field = 0; field < sizes.size(); region += sizes[field++].size())
      if (vertex == 0 || written[field] || operands[field].count > 1)
        copy(region, sizes[field].size(), operands[field].of(vertex), true);
    if (stateBytes)
      runner.copyPlain(operands.back().of(vertex), true);
    const bool isAligned = runner.computeAligned();
    const std::string broken = isAligned ? runner.memory.overwritten() : "";
    if (!isAligned || !broken.empty())
      return makeError(frame, (isAligned ? "<wrote outside: group " : "<misaligned: group ") +
                                  std::to_string(numberOfGroup(frame)) + " vertex " +
                                  std::to_string(vertex) + " field " +
                                  (isAligned ? broken : runner.memory.fieldAt(misaligned)) + ">");
    region = 0;
    for (std::size_t field = 0; field < sizes.size(); region += sizes[field++].size())
      if (written[field])
        copy(region, sizes[field].size(), results[output++].of(vertex), false);
    if (stateBytes)
      runner.copyPlain(results.back().of(vertex), false);
  }
  return nullptr;
}

} // namespace ipujax
