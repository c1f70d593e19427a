// Runs the vertices of one type as one call of XLA, and says what fields the type has.
//
// The glue below a codelet's text defines, for each vertex type, a class `Fields` with
// `using Type = ...` and `visit(vertex, function)`, which calls `function(name, field)` for each
// public field; all else follows from the fields' types.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <string>
#include <type_traits>

#include <ipujax/call_frame.hpp>
#include <ipujax/shared_work.hpp>
#include <ipujax/tile_memory.hpp>
#include <poplar/Vertex.hpp>

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

// A field is connected with tensors, or holds numbers: a pointer is not one of a tile's memory.
template <class Field, class Plain = std::remove_all_extents_t<Field>>
constexpr bool isField =
    Connected<Field>::value || (std::is_trivially_copyable_v<Field> && !std::is_pointer_v<Plain> &&
                                !std::is_member_pointer_v<Plain>);

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
      describePlain(text, offset, field);
      offset += sizeof(Field);
    }
    text += '}';
  });
  text = text.empty() ? "[]" : text + ']';
  return text.c_str();
}

// The sizes of the rows of each field: {1} for a scalar, {n} for a vector.
using RowSizes = std::vector<std::vector<std::int64_t>>;

// A vertex whose fields are connected with memory of a tile.
template <class Fields> class ConnectedVertex {
public:
  using Type = typename Fields::Type;
  Type vertex{};
  TileMemory memory;

  // `words` has a bit for each of the first fields: whether it begins at a whole word.
  explicit ConnectedVertex(const RowSizes &sizes, std::int64_t words = -1) {
    std::size_t number = 0;
    forConnected([&](const char *name, auto connected, auto &) {
      using Traits = decltype(connected);
      const bool beginsAtWord = number < 63 && (words >> number & 1);
      for (const std::int64_t size : sizes[number])
        memory.add(name, size * sizeof(typename Traits::Element),
                   Traits::alignment < 4 && beginsAtWord ? 4 : Traits::alignment);
      ++number;
    });
    memory.allocate();
    connect(sizes);
  }

  // Copies the plain fields from or to their bytes.
  static void copyPlain(Type &vertex, char *state, bool toVertex) {
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

  // Calls `compute`, for all workers of a MultiVertex; `beforeEach` comes before each call.
  template <class Function> static void compute(Type &vertex, Function beforeEach) {
    if constexpr (std::is_base_of_v<poplar::MultiVertex, Type>)
      for (unsigned worker = 0; worker < poplar::MultiVertex::numWorkers(); ++worker) {
        beforeEach();
        vertex.compute(worker);
      }
    else {
      beforeEach();
      vertex.compute();
    }
  }

private:
  std::vector<std::vector<char>> rows; // the fields within fields of rank 2

  template <class Function> void forConnected(Function function) {
    Fields::visit(vertex, [&](const char *name, auto &field) {
      using Field = std::remove_reference_t<decltype(field)>;
      if constexpr (Connected<Field>::value)
        function(name, Connected<Field>{}, field);
    });
  }

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

// Worker cycles of a Vertex, tile cycles of the others, as the loops that `compute` runs say; -1 if
// that stops at an access that is not aligned.
template <class Fields> std::int64_t countLoops(typename Fields::Type &vertex) {
  if (setjmp(waiting))
    return -1;
  std::uint64_t slowest = 0;
  auto takeWorker = [&] {
    slowest = poplar::loopSlots > slowest ? poplar::loopSlots : slowest;
    poplar::loopSlots = 0;
  };
  poplar::loopSlots = 0;
  ConnectedVertex<Fields>::compute(vertex, takeWorker);
  takeWorker();
  return slowest * (std::is_base_of_v<poplar::Vertex, typename Fields::Type> ? 1 : 6);
}

template <class Value, class = void> struct HasEstimate : std::false_type {};
template <class Value>
struct HasEstimate<Value, std::void_t<decltype(std::declval<const Value &>().getCycleEstimate())>>
    : std::true_type {};

// The cycles of a vertex with these sizes and plain fields, its elements being zero; -1: it does
// not say. `sizes` has, for each connected field, the number of its rows and the size of each.
// The cycles that a vertex says; -1 if it stops at an access that is not aligned.
template <class Type> std::int64_t readEstimate(const Type &vertex) {
  if (setjmp(waiting))
    return -1;
  return std::int64_t(vertex.getCycleEstimate());
}

template <class Fields>
std::int64_t estimate(const std::int64_t *sizes, const char *state, bool hasLoops) {
  using Type = typename Fields::Type;
  RowSizes extents;
  Type probe{};
  Fields::visit(probe, [&](const char *, auto &field) {
    if constexpr (Connected<std::remove_reference_t<decltype(field)>>::value) {
      extents.emplace_back(sizes + 1, sizes + 1 + sizes[0]);
      sizes += 1 + sizes[0];
    }
  });
  ConnectedVertex<Fields> connected(extents);
  Type &vertex = connected.vertex;
  connected.copyPlain(vertex, const_cast<char *>(state), true);
  if constexpr (HasEstimate<Type>::value)
    return readEstimate<Type>(vertex);
  return hasLoops ? countLoops<Fields>(vertex) : -1;
}

// The values of one connected field of all vertices of a call.
struct FieldValues {
  Buffer operand, result;
  bool isWritten;
  std::size_t elementBytes;
};

// What a call gives and takes. Operands: for each connected field what it holds and, at rank 2, the
// sizes of its rows; then, if there are plain fields, their bytes. Results: the written fields,
// then the plain fields' bytes. An operand of one row is that of all vertices. Attributes: what the
// vertices are called, as a number and in words, and which fields begin at a whole word.
struct Call {
  std::vector<FieldValues> fields;
  RowSizes sizes;
  Buffer state, newState;
  std::int64_t vertices = -1, group = 0, words = 0;
  std::string label;
};

// Reads a call; returns whether its operands and results are those of the vertex type.
template <class Fields> bool readCall(XLA_FFI_CallFrame *frame, Call &call) {
  CallReader reader(frame);
  typename Fields::Type probe{};
  std::int64_t stateBytes = 0;
  auto takeVertices = [&](const Buffer &result) {
    reader.require(call.vertices == -1 || call.vertices == result.count);
    call.vertices = result.count;
  };
  Fields::visit(probe, [&](const char *, auto &field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (Connected<Field>::value) {
      using Traits = Connected<Field>;
      constexpr XLA_FFI_DataType type = dataType<typename Traits::Element>();
      FieldValues values{reader.takeOperand(type), {}, Traits::access != Access::READ,
                         sizeof(typename Traits::Element)};
      const std::int64_t size = values.operand.size;
      call.sizes.push_back({size});
      if constexpr (Traits::rank == 2)
        call.sizes.back() = reader.takeRowSizes(size);
      reader.require(Traits::rank || size == 1);
      if (values.isWritten) {
        values.result = reader.takeResult(type);
        reader.require(values.result.size == size);
        takeVertices(values.result);
      }
      call.fields.push_back(values);
    } else
      stateBytes += sizeof(Field);
  });
  if (stateBytes) {
    call.state = reader.takeOperand(XLA_FFI_DataType_U8);
    call.newState = reader.takeResult(XLA_FFI_DataType_U8);
    reader.require(call.state.size == stateBytes && call.newState.size == stateBytes);
    reader.require(call.state.count == 1 || call.state.count == call.newState.count);
    takeVertices(call.newState);
  }
  for (const FieldValues &values : call.fields)
    reader.require(values.operand.count == 1 || values.operand.count == call.vertices);
  call.group = reader.takeNumber();
  call.label = reader.takeText();
  call.words = reader.takeNumber();
  return reader.isDone() && call.vertices >= 0;
}

// What the first of the vertices that went wrong did; "" if none has.
struct Failure {
  std::mutex mutex;
  std::int64_t vertex = -1;
  std::string what;
};

// Runs vertices of a call one after the other, on the memory of one tile.
template <class Fields> class Batch {
public:
  explicit Batch(const Call &call) : connected(call.sizes, call.words), call(call) {
    std::size_t region = 0;
    for (std::size_t field = 0; field < call.fields.size(); ++field) {
      const FieldValues &values = call.fields[field];
      std::size_t begin = 0;
      for (const std::int64_t size : call.sizes[field]) {
        const std::size_t bytes = size * values.elementBytes;
        char *inside = connected.memory.at(region++);
        auto move = [&](const Buffer &buffer) {
          const std::size_t step = buffer.count == 1 ? 0 : buffer.size * values.elementBytes;
          return Move{inside, buffer.data + begin, bytes, step};
        };
        if (values.isWritten || values.operand.count > 1)
          arriving.push_back(move(values.operand));
        else
          std::memcpy(inside, values.operand.data + begin, bytes);
        if (values.isWritten)
          leaving.push_back(move(values.result));
        begin += bytes;
      }
    }
  }

  // Runs some vertices; returns whether none did anything wrong.
  bool run(SharedWork::Part part, Failure &failure) {
    if (setjmp(waiting))
      return report(failure, " accesses by vectors, and not aligned, field '",
                    connected.memory.fieldAt(misaligned));
    runVertices(part);
    if (isIntact)
      return true;
    return report(failure, " writes outside of field '", connected.memory.overwritten());
  }

private:
  using Type = typename Fields::Type;
  struct Move {
    char *inside, *outside; // of vertex 0
    std::size_t bytes, step;
  };
  ConnectedVertex<Fields> connected;
  const Call &call;
  std::vector<Move> arriving, leaving;
  volatile std::int64_t running = 0; // read after a jump
  bool isIntact = true;

  __attribute__((noinline)) void runVertices(SharedWork::Part part) {
    for (std::int64_t vertex = part.first; vertex < part.last; ++vertex) {
      running = vertex;
      for (const Move &move : arriving)
        std::memcpy(move.inside, move.outside + vertex * move.step, move.bytes);
      runVertex(vertex);
      if (!(isIntact = connected.memory.isIntact()))
        return;
      for (const Move &move : leaving)
        std::memcpy(move.outside + vertex * move.step, move.inside, move.bytes);
    }
  }

  // A copy runs where there can be one: fields that are not public begin anew with each vertex, and
  // the compiler keeps in registers what no pointer can reach.
  void runVertex(std::int64_t vertex) {
    if constexpr (std::is_copy_constructible_v<Type>) {
      Type copy(connected.vertex);
      computeWithState(copy, vertex);
    } else
      computeWithState(connected.vertex, vertex);
  }
  void computeWithState(Type &each, std::int64_t vertex) {
    const std::int64_t row = call.state.count == 1 ? 0 : vertex;
    connected.copyPlain(each, call.state.data + row * call.state.size, true);
    connected.compute(each, [] {});
    connected.copyPlain(each, call.newState.data + vertex * call.newState.size, false);
  }

  bool report(Failure &failure, const char *what, const char *field) const {
    const std::int64_t vertex = running;
    std::lock_guard<std::mutex> lock(failure.mutex);
    if (failure.vertex < 0 || vertex < failure.vertex) {
      failure.vertex = vertex;
      failure.what = call.label + what + field + "' (vertex " + std::to_string(vertex) +
                     " of group " + std::to_string(call.group) + ")";
    }
    return false;
  }
};

constexpr std::int64_t VERTICES_OF_A_PART = 32;

// Runs the vertices of a call. `runsAlone`: one after the other, on one thread.
template <class Fields, bool runsAlone> XLA_FFI_Error *run(XLA_FFI_CallFrame *frame) {
  if (answerMetadata(frame))
    return nullptr;
  struct Task {
    Call call;
    Failure failure;
  } task;
  if (!readCall<Fields>(frame, task.call))
    return makeError(frame, "a codelet in C++ is called with other operands than its fields");
  auto runParts = [](SharedWork &work, void *data) {
    Task &task = *static_cast<Task *>(data);
    auto part = work.take();
    if (part.first >= part.last)
      return;
    Batch<Fields> batch(task.call);
    for (; part.first < part.last; part = work.take())
      if (!batch.run(part, task.failure))
        return work.stop();
  };
  const std::int64_t vertices = task.call.vertices;
  SharedWork::run(frame, vertices, runsAlone ? vertices + 1 : VERTICES_OF_A_PART, runParts, &task);
  return task.failure.vertex < 0 ? nullptr : makeError(frame, task.failure.what);
}

} // namespace ipujax
