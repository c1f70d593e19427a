// The types that codelets in C++ are written with, for the host's compiler.
#pragma once

#include <cstddef>
#include <cstdint>

#include <ipudef.h>
#include <poplar/HalfFloat.hpp>

namespace poplar {

enum class VectorLayout {
  NOT_APPLICABLE,
  SPAN,
  SHORT_SPAN,
  ONE_PTR,
  COMPACT_PTR,
  SCALED_PTR32,
  SCALED_PTR64,
  SCALED_PTR128
};

enum class VectorListLayout {
  NOT_APPLICABLE,
  ONE_PTR,
  SCALED_PTR32,
  SCALED_PTR64,
  SCALED_PTR128,
  COMPACT_DELTAN,
  DELTANELEMENTS,
  DELTAN
};

class Vertex {};
class SupervisorVertex {};
class MultiVertex {
public:
  static constexpr unsigned numWorkers() { return 6; }
};

// Elements in a row; layouts that are a pointer alone have no size.
template <class Value, VectorLayout Layout> class Elements {
public:
  using value_type = Value;
  Value &operator[](std::size_t index) const { return first[index]; }
  Value *begin() const { return first; }
  Value *end() const { return first + size(); }
  Value *data() const { return first; }
  Value &front() const { return first[0]; }
  Value &back() const { return first[size() - 1]; }
  bool empty() const { return size() == 0; }
  unsigned size() const {
    static_assert(Layout == VectorLayout::SPAN || Layout == VectorLayout::SHORT_SPAN,
                  "a Vector of this layout is a pointer and has no size: use SPAN");
    return count;
  }
  void connect(Value *data, unsigned elements) { first = data, count = elements; }

private:
  Value *first = nullptr;
  unsigned count = 0;
};

// `Vector<T>` within `Input`, `Output` or `InOut` is a field of many elements; `Vector<Input<...>>`
// has elements that are fields.
template <class Value, VectorLayout Layout = VectorLayout::SPAN,
          unsigned Alignment = alignof(Value), bool Interleaved = false>
class Vector : public Elements<Value, Layout> {};

template <class Value, VectorListLayout Layout = VectorListLayout::DELTANELEMENTS,
          unsigned Alignment = alignof(Value), bool Interleaved = false>
class VectorList {};

enum class Access { READ, WRITE, READ_WRITE };

template <Access Kind, class Value> struct Accessed { using type = Value; };
template <class Value> struct Accessed<Access::READ, Value> { using type = const Value; };

// A scalar field.
template <class Value, Access Kind> class Edge {
  using Element = typename Accessed<Kind, Value>::type;

public:
  Element &operator*() const { return *element; }
  Element *operator->() const { return element; }
  operator Element &() const { return *element; }
  template <class Given> const Edge &operator=(const Given &value) const {
    *element = value;
    return *this;
  }
  void connect(Element *data) { element = data; }

private:
  Element *element = nullptr;
};

template <class Value, VectorLayout Layout, unsigned Alignment, bool Interleaved, Access Kind>
class Edge<Vector<Value, Layout, Alignment, Interleaved>, Kind>
    : public Elements<typename Accessed<Kind, Value>::type, Layout> {
public:
  const Edge *operator->() const { return this; } // both `x.size()` and `x->size()` are written
};

template <class Value, VectorListLayout Layout, unsigned Alignment, bool Interleaved, Access Kind>
class Edge<VectorList<Value, Layout, Alignment, Interleaved>, Kind>
    : public Elements<Edge<Vector<Value, VectorLayout::SPAN, Alignment, Interleaved>, Kind>,
                      VectorLayout::SPAN> {
public:
  const Edge *operator->() const { return this; }
};

template <class Value> using Input = Edge<Value, Access::READ>;
template <class Value> using Output = Edge<Value, Access::WRITE>;
template <class Value> using InOut = Edge<Value, Access::READ_WRITE>;

// The issue slots of a worker that marked loops have taken.
inline thread_local std::uint64_t loopSlots = 0;

// `for (unsigned i : poplar::loop(n, loads, stores, flops))`: a loop of n iterations, each of which
// takes max(loads + stores, flops) slots, since memory and arithmetic are issued together.
class loop {
public:
  class iterator {
  public:
    explicit iterator(unsigned index) : index(index) {}
    unsigned operator*() const { return index; }
    iterator &operator++() {
      ++index;
      return *this;
    }
    bool operator!=(const iterator &other) const { return index != other.index; }

  private:
    unsigned index;
  };

  loop(unsigned n, unsigned loads, unsigned stores, unsigned flops) : n(n) {
    const unsigned memory = loads + stores;
    loopSlots += std::uint64_t(n) * (memory > flops ? memory : flops);
  }
  iterator begin() const { return iterator(0); }
  iterator end() const { return iterator(n); }

private:
  unsigned n;
};

} // namespace poplar
