// Which slot of a program each tensor of a recording is. Tensors are recognised by identity,
// through weak pointers, so that recording neither keeps memory alive nor mistakes a reused address
// for an old tensor. Below autograd that is not enough: see Note [Tensors that autograd makes].
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tape/program.h"

namespace ftax {

class Slots {
 public:
  explicit Slots(bool below_autograd) : below_autograd_(below_autograd) {}

  // A tensor that can be rebound when the tape is replayed; its slot.
  int add_input(const at::Tensor& tensor);
  // A parameter, a buffer, or what else outlives the call: a constant once a call reads it.
  void add_weight(const at::Tensor& tensor);
  // What a call made; its slot.
  int add(const at::Tensor& tensor);

  // kNoSlot for what is not known: of this very tensor, or of one that shows the same memory.
  [[nodiscard]] int find_same(const at::Tensor& tensor) const;
  [[nodiscard]] int find(const at::Tensor& tensor);
  // What is not known becomes a constant. Throws UnsupportedError for a tensor in memory that the
  // recording knows, but that no operator call made.
  int find_or_capture(const at::Tensor& tensor);
  // Of a tensor that has one.
  [[nodiscard]] int at(const at::Tensor& tensor) const;

  [[nodiscard]] bool is_weight(const at::Tensor& tensor) const;
  // Whether it is an input or a constant, or in the memory of one or of a weight: a write is one of
  // memory, whatever tensor it goes through.
  [[nodiscard]] bool is_outside(int slot) const { return outside_slots_.contains(slot); }
  [[nodiscard]] bool is_outside(const at::Tensor& tensor) const;

  [[nodiscard]] int count() const { return count_; }
  // Weights, buffers and captured tensors that a call read, with their slots.
  [[nodiscard]] const auto& constants() const { return constants_; }
  // Those of them that are neither weights, buffers nor numbers.
  [[nodiscard]] const auto& captured() const { return captured_; }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  // What tells a tensor from all others of its storage.
  struct View {
    int64_t offset;
    std::vector<int64_t> sizes, strides;
    at::ScalarType dtype;
    int slot;           // kNoSlot: that of `weight`, once it has one
    at::Tensor weight;  // undefined for what a call made

    [[nodiscard]] bool shows(const at::Tensor& tensor) const;
  };

  void remember_view(const at::Tensor& tensor, int slot, const at::Tensor& weight);
  void note_outside(const at::Tensor& tensor);

  bool below_autograd_;
  int count_ = 0;
  std::unordered_map<c10::TensorImpl*, int> slots_;
  std::unordered_map<c10::StorageImpl*, std::vector<View>> views_;  // below autograd only
  std::unordered_set<c10::StorageImpl*> storages_;  // of inputs and of every tensor produced
  std::unordered_set<c10::TensorImpl*> weights_;
  std::unordered_set<int> outside_slots_;
  std::unordered_set<c10::StorageImpl*> outside_storages_;
  std::vector<std::pair<int, at::Tensor>> constants_;
  std::vector<int> captured_;
  std::vector<WeakTensor> weak_tensors_;
  std::vector<WeakStorage> weak_storages_;
  std::vector<at::Tensor> held_;
};

}  // namespace ftax
