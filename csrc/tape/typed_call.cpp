// No list of operators, only one of signatures. Which of them an operator has is read from its
// schema, type by type; torch checks the answer once more when the typed handle is made. `Held<T>`
// says for each C++ argument type which schema type it stands for, how a recorded value is kept
// between runs, and how it is handed over.
#include "tape/typed_call.h"

#include <c10/util/OptionalArrayRef.h>

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ftax {
namespace {

using c10::TypeKind;

bool is_kind(const c10::TypePtr& type, TypeKind kind) { return type->kind() == kind; }

// The T of an Optional[T]; nullptr if `type` is not optional.
c10::TypePtr inside_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional == nullptr ? nullptr : optional->getElementType();
}

bool is_list_of(const c10::TypePtr& type, TypeKind kind) {
  const auto list = type->cast<c10::ListType>();
  return list != nullptr && is_kind(list->getElementType(), kind);
}

// --- plain values: how T is read from a recorded constant
// -----------------------------------------
template <class T>
struct Plain;

template <class T, TypeKind kKind>
struct PlainOf {
  static bool accepts(const c10::TypePtr& type) { return is_kind(type, kKind); }
};
template <>
struct Plain<int64_t> : PlainOf<int64_t, TypeKind::IntType> {
  static int64_t read(const c10::IValue& value) { return value.toInt(); }
};
template <>
struct Plain<c10::SymInt> : PlainOf<c10::SymInt, TypeKind::SymIntType> {
  static c10::SymInt read(const c10::IValue& value) { return value.toInt(); }
};
template <>
struct Plain<double> : PlainOf<double, TypeKind::FloatType> {
  static double read(const c10::IValue& value) { return value.toDouble(); }
};
template <>
struct Plain<bool> : PlainOf<bool, TypeKind::BoolType> {
  static bool read(const c10::IValue& value) { return value.toBool(); }
};
template <>
struct Plain<at::ScalarType> : PlainOf<at::ScalarType, TypeKind::ScalarTypeType> {
  static at::ScalarType read(const c10::IValue& value) { return value.toScalarType(); }
};
template <>
struct Plain<at::Layout> : PlainOf<at::Layout, TypeKind::LayoutType> {
  static at::Layout read(const c10::IValue& value) { return value.toLayout(); }
};
template <>
struct Plain<at::MemoryFormat> : PlainOf<at::MemoryFormat, TypeKind::MemoryFormatType> {
  static at::MemoryFormat read(const c10::IValue& value) { return value.toMemoryFormat(); }
};
template <>
struct Plain<at::Device> : PlainOf<at::Device, TypeKind::DeviceObjType> {
  static at::Device read(const c10::IValue& value) { return value.toDevice(); }
};
template <>
struct Plain<at::Scalar> : PlainOf<at::Scalar, TypeKind::NumberType> {
  static at::Scalar read(const c10::IValue& value) { return value.toScalar(); }
};

// --- arguments: held between runs, handed over in each
// --------------------------------------------
using Slots = std::vector<c10::IValue>;

template <class T>
struct Held {  // a plain value, or a reference to one
  using Value = std::remove_cv_t<std::remove_reference_t<T>>;
  static bool accepts(const c10::Argument& argument) {
    return Plain<Value>::accepts(argument.real_type());
  }
  explicit Held(const Argument& argument) : value(Plain<Value>::read(argument.constant)) {}
  const Value& get(Slots&) const { return value; }
  Value value;
};

template <class T>
struct Held<std::optional<T>> {
  static bool accepts(const c10::Argument& argument) {
    const c10::TypePtr type = inside_optional(argument.real_type());
    return type != nullptr && Plain<T>::accepts(type);
  }
  explicit Held(const Argument& argument) {
    if (!argument.constant.isNone()) value = Plain<T>::read(argument.constant);
  }
  const std::optional<T>& get(Slots&) const { return value; }
  std::optional<T> value;
};

template <>
struct Held<const at::Tensor&> {
  static bool accepts(const c10::Argument& argument) {
    const auto* alias = argument.alias_info();
    return is_kind(argument.type(), TypeKind::TensorType) &&
           (alias == nullptr || !alias->isWrite());
  }
  explicit Held(const Argument& argument) : slot(argument.slot) {
    if (slot == kNoSlot) constant = argument.constant.toTensor();
  }
  const at::Tensor& get(Slots& slots) const {
    return slot == kNoSlot ? constant : slots[static_cast<size_t>(slot)].toTensor();
  }
  int slot;
  at::Tensor constant;
};

template <>
struct Held<at::Tensor&> {  // written in place, so never a constant
  static bool accepts(const c10::Argument& argument) {
    const auto* alias = argument.alias_info();
    return is_kind(argument.type(), TypeKind::TensorType) && alias != nullptr && alias->isWrite();
  }
  explicit Held(const Argument& argument) : slot(argument.slot) {
    TORCH_CHECK(slot != kNoSlot, "an operator writes into a constant");
  }
  at::Tensor& get(Slots& slots) const { return slots[static_cast<size_t>(slot)].toTensor(); }
  int slot;
};

template <>
struct Held<const std::optional<at::Tensor>&> {
  static bool accepts(const c10::Argument& argument) {
    const c10::TypePtr type = inside_optional(argument.type());
    return type != nullptr && is_kind(type, TypeKind::TensorType);
  }
  explicit Held(const Argument& argument) : slot(argument.slot) {
    if (slot == kNoSlot && !argument.constant.isNone()) constant = argument.constant.toTensor();
  }
  std::optional<at::Tensor> get(Slots& slots) const {
    if (slot == kNoSlot) return constant;
    return slots[static_cast<size_t>(slot)].toTensor();
  }
  int slot;
  std::optional<at::Tensor> constant;
};

template <>
struct Held<at::IntArrayRef> {
  static bool accepts(const c10::Argument& argument) {
    return is_list_of(argument.real_type(), TypeKind::IntType);
  }
  explicit Held(const Argument& argument) : values(argument.constant.toIntVector()) {}
  at::IntArrayRef get(Slots&) const { return values; }
  std::vector<int64_t> values;
};

template <>
struct Held<c10::SymIntArrayRef> {
  static bool accepts(const c10::Argument& argument) {
    return is_list_of(argument.real_type(), TypeKind::SymIntType);
  }
  explicit Held(const Argument& argument) {
    for (const int64_t value : argument.constant.toIntVector()) values.emplace_back(value);
  }
  c10::SymIntArrayRef get(Slots&) const { return values; }
  std::vector<c10::SymInt> values;
};

template <>
struct Held<at::OptionalIntArrayRef> {
  static bool accepts(const c10::Argument& argument) {
    const c10::TypePtr type = inside_optional(argument.real_type());
    return type != nullptr && is_list_of(type, TypeKind::IntType);
  }
  explicit Held(const Argument& argument) : given(!argument.constant.isNone()) {
    if (given) values = argument.constant.toIntVector();
  }
  at::OptionalIntArrayRef get(Slots&) const {
    return given ? at::OptionalIntArrayRef(values) : at::OptionalIntArrayRef();
  }
  bool given;
  std::vector<int64_t> values;
};

template <>
struct Held<std::string_view> {
  static bool accepts(const c10::Argument& argument) {
    return is_kind(argument.type(), TypeKind::StringType);
  }
  explicit Held(const Argument& argument) : value(argument.constant.toStringRef()) {}
  std::string_view get(Slots&) const { return value; }
  std::string value;
};

// --- calls
// ----------------------------------------------------------------------------------------
template <class Signature>
class SignatureCall;

template <class Result, class... Args>
class SignatureCall<Result(Args...)> final : public TypedCall {
  static_assert(std::is_same_v<std::decay_t<Result>, at::Tensor>);

 public:
  static bool accepts(const c10::FunctionSchema& schema) {
    if (schema.arguments().size() != sizeof...(Args) || schema.returns().size() != 1) return false;
    if (!is_kind(schema.returns()[0].type(), TypeKind::TensorType)) return false;
    size_t i = 0;
    return (Held<Args>::accepts(schema.arguments()[i++]) && ...);
  }

  explicit SignatureCall(const Call& call)
      : SignatureCall(call, std::index_sequence_for<Args...>()) {}

  void run(Slots& slots) override { run(slots, std::index_sequence_for<Args...>()); }

 private:
  template <size_t... kPlaces>
  SignatureCall(const Call& call, std::index_sequence<kPlaces...>)
      : op_(call.op.value().typed<Result(Args...)>()),
        output_(call.outputs[0].slot),
        arguments_(call.arguments[kPlaces]...) {}

  template <size_t... kPlaces>
  void run(Slots& slots, std::index_sequence<kPlaces...>) {
    at::Tensor result = op_.call(std::get<kPlaces>(arguments_).get(slots)...);
    if (output_ != kNoSlot) slots[static_cast<size_t>(output_)] = std::move(result);
  }

  c10::TypedOperatorHandle<Result(Args...)> op_;
  int output_;
  std::tuple<Held<Args>...> arguments_;
};

template <class... Signatures>
std::unique_ptr<TypedCall> make_first(const Call& call) {
  std::unique_ptr<TypedCall> made;
  const auto try_one = [&]<class Signature>(std::type_identity<Signature>) {
    if (!SignatureCall<Signature>::accepts(call.op->schema())) return false;
    made = std::make_unique<SignatureCall<Signature>>(call);
    return true;
  };
  static_cast<void>((try_one(std::type_identity<Signatures>()) || ...));
  return made;
}

using T = at::Tensor;
using In = const at::Tensor&;
using Maybe = const std::optional<at::Tensor>&;
using Number = const at::Scalar&;
using Sizes = c10::SymIntArrayRef;
using Dtype = std::optional<at::ScalarType>;
using Format = std::optional<at::MemoryFormat>;
using End = std::optional<c10::SymInt>;

std::unique_ptr<TypedCall> make_known(const Call& call) {
  return make_first<T(In),                                        // relu, tanh
                    T(In, In),                                    // mul, matmul
                    T(In, In, In),                                // where
                    T(In, Number),                                // pow, eq
                    T(In, In, Number),                            // add, sub
                    T(In, In, In, Number, Number),                // addmm
                    T(In, In, Maybe),                             // linear
                    T(In, Sizes),                                 // view, reshape
                    T(In, at::IntArrayRef),                       // permute
                    T(In, Sizes, bool),                           // expand
                    T(In, int64_t),                               // unsqueeze
                    T(In, int64_t, int64_t),                      // transpose, flatten
                    T(In, int64_t, c10::SymInt),                  // select
                    T(In, int64_t, End, End, c10::SymInt),        // slice
                    T(In, int64_t, Dtype),                        // softmax, cumsum
                    T(In, at::OptionalIntArrayRef, bool, Dtype),  // mean, sum
                    T(In, double, bool),                          // dropout
                    T(In, std::string_view),                      // gelu
                    T(In, at::MemoryFormat),                      // contiguous
                    T(In, Format),                                // clone
                    T(In, at::ScalarType, bool, bool, Format),    // to
                    T(In, In, c10::SymInt, bool, bool),           // embedding
                    T(In, Sizes, Maybe, Maybe, double, bool),     // layer_norm
                    T(In, Maybe, Maybe, Maybe, Maybe, bool, double, double, bool),    // batch_norm
                    T(In, In, Maybe, Sizes, Sizes, Sizes, c10::SymInt),               // conv2d
                    T(In, In, In, Maybe, double, bool, std::optional<double>, bool),  // attention
                    T&(T&),                                                           // relu_
                    T&(T&, In),                                                       // mul_
                    T&(T&, Number),                                                   // mul_
                    T&(T&, In, Number)                                                // add_
                    >(call);
}

}  // namespace

std::unique_ptr<TypedCall> make_typed_call(const Call& call) {
  if (!call.op.has_value() || call.outputs.size() != 1 || call.outputs[0].is_list) return nullptr;
  try {
    return make_known(call);
  } catch (const c10::Error&) {
    return nullptr;  // the schema promised a C++ signature that the operator does not have
  }
}

}  // namespace ftax
