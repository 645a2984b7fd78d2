// A tensor that lies where the graph reads another is cloned before anything is written.
#include "tape/own_inputs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace ftax {
namespace {

void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
          const std::vector<size_t>& places, bool reads_all_first) {
  std::vector<at::Tensor> contents;
  contents.reserve(places.size());
  for (const size_t place : places) {
    contents.push_back(reads_all_first ? from[place].clone() : from[place]);
  }
  for (size_t i = 0; i < places.size(); ++i) to[places[i]].copy_(contents[i]);
}

}  // namespace

OwnInputs::OwnInputs(std::vector<at::Tensor> tensors) : own_(std::move(tensors)) {
  for (const at::Tensor& tensor : own_) memory_.insert(tensor.storage().unsafeGetStorageImpl());
}

std::vector<size_t> OwnInputs::take(const std::vector<at::Tensor>& given) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> places;
  for (size_t i = 0; i < own_.size(); ++i) {
    if (given.at(i).const_data_ptr() != own_[i].const_data_ptr()) places.push_back(i);
  }
  copy(own_, given, places, is_tangled(given, places));
  return places;
}

void OwnInputs::give_back(const std::vector<at::Tensor>& given,
                          const std::vector<size_t>& places) const {
  const at::NoGradGuard no_grad;
  copy(given, own_, places, is_tangled(given, places));
}

bool OwnInputs::is_tangled(const std::vector<at::Tensor>& given,
                           const std::vector<size_t>& places) const {
  return std::ranges::any_of(places, [&](const size_t place) {
    const at::Tensor& tensor = given[place];
    return tensor.has_storage() && memory_.contains(tensor.storage().unsafeGetStorageImpl());
  });
}

std::vector<at::Tensor> copy_each(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  if (tensors.size() == 1) {
    copies.push_back(tensors.front().clone());
    return copies;
  }
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(at::empty_like(tensor, at::MemoryFormat::Preserve));
  }
  if (!tensors.empty()) at::_foreach_copy_(copies, tensors);
  return copies;
}

}  // namespace ftax
