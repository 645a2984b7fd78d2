// What a tape holds: the operator calls of one inference, as data. Tensors are numbered slots, so
// that the same calls can run on other inputs; everything else an operator was given is a constant.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ftax {

constexpr int kNoSlot = -1;

struct Argument {
  enum class Kind : uint8_t { kConstant, kSlot, kTensorList, kOptionalTensorList };
  Kind kind = Kind::kConstant;
  int slot = kNoSlot;           // kSlot
  c10::IValue constant;         // kConstant
  std::vector<Argument> items;  // the lists: slots and, for absent optionals, constants
};

struct Output {
  int slot = kNoSlot;      // kNoSlot: not a tensor, or undefined
  bool is_list = false;    // a Tensor[]; its elements go to `items`
  std::vector<int> items;  // kNoSlot for an undefined element
};

// A backward pass: autograd's engine runs from the roots and leaves gradients at the leaves.
struct Backward {
  struct Leaf {
    int slot;                   // of the leaf: a weight, or an input that may be rebound
    int gradient = kNoSlot;     // where its gradient goes
    bool had_gradient = false;  // before, to which the pass adds
  };
  std::vector<int> roots;
  std::vector<int> gradients;  // of the roots
  bool keeps_graph = false;
  std::vector<Leaf> leaves;
};

struct Call {
  std::optional<c10::OperatorHandle> op;  // empty: a fill, or a backward pass
  std::optional<Backward> backward;
  at::Tensor fill;  // bytes that Python wrote into a fresh tensor unseen
  std::vector<Argument> arguments;
  std::vector<Output> outputs;
  std::vector<int> releases;  // slots whose last use this call was
  std::vector<int> written;   // slots of arguments into whose memory it writes
  std::vector<int> shared;    // slots of arguments in whose memory a result is, whatever the schema
  std::vector<int> leaves;    // slots that an earlier call filled, and that require gradients here
  std::string module_path;    // of the module whose forward made the call; "" for the model itself
  bool grad_mode = false;     // under which it was made
  bool communicates = false;  // returns c10d's Work, to be waited for
  bool overlaps = false;      // the call that was recorded did not wait there
  bool hidden = false;        // made inside a binding that hides it from Python (torch.tensor)

  [[nodiscard]] std::string operator_name() const;  // "aten::add.Tensor", or "ftax::fill"
};

struct InputFacts {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // operators were chosen, and views made, for this layout
  at::ScalarType dtype;
  c10::Device device;

  [[nodiscard]] static InputFacts of(const at::Tensor& tensor);
  [[nodiscard]] bool fit(const at::Tensor& tensor) const;
};

struct Program {
  std::vector<Call> calls;
  int slot_count = 0;
  std::vector<int> input_slots;
  std::vector<InputFacts> input_facts;  // one an input slot
  std::vector<int> output_slots;
  std::vector<std::pair<int, at::Tensor>> constants;  // weights, buffers and captured tensors
  std::vector<int> captured_slots;  // constants that are neither weights, buffers nor numbers
  std::vector<int> passing_slots;   // of those: on the host, and gone when the call had returned
  std::vector<int> host_reads;      // calls that returned a number to Python
  std::vector<int> mutations;       // calls that write into a constant or an input
  std::vector<int> bare;            // leaves whose gradients are gone when Python is done
  bool inference_mode = false;      // recorded under inference mode
  // Each call runs under its own grad mode, as where a replay records autograd's graph. Below
  // autograd a few kernels ask for it too: oneDNN's LSTM keeps what its backward pass needs.
  bool keeps_grad_mode = false;
  // Recorded below autocast too, whose casts are calls of their own: a replay adds none.
  bool below_autograd = false;
};

// The program without the calls that only return a number to Python. What was made of the number is
// a constant of later calls, so they compute the same; what goes is the wait for the device. What
// the calls in `kept` read becomes further outputs, in their order, copied where it was read;
// throws UnsupportedError where that is something other than one element of a tensor.
[[nodiscard]] Program drop_host_reads(const Program& program, const std::vector<int>& kept);

// The calls from `first` to before `last` alone, given these slots, as they hold such tensors, and
// giving those in `outputs`.
[[nodiscard]] Program take_part(const Program& program, size_t first, size_t last,
                                const std::vector<std::pair<int, at::Tensor>>& inputs,
                                const std::vector<int>& outputs);

// What a slot holds at a call, in every run.
struct Baked {
  int call;
  int slot;
  at::Tensor tensor;
};

// The same with constants in these places. A call that makes such a slot is dropped, so all that it
// makes has to be given; a call that reads one reads the constant.
[[nodiscard]] Program bake(const Program& program, const std::vector<Baked>& places);

}  // namespace ftax
