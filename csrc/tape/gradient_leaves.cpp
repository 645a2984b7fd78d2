#include "tape/gradient_leaves.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace ftax {

std::vector<at::Tensor> find_leaves(const std::vector<at::Tensor>& roots) {
  std::vector<at::Tensor> leaves;
  torch::autograd::edge_list edges;  // nothing else need hold the node of a root that is a leaf
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto add = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) edges.push_back(edge);
  };
  for (const at::Tensor& root : roots) {
    if (root.requires_grad()) add(torch::autograd::impl::gradient_edge(root));
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    torch::autograd::Node* const node = edges[i].function.get();  // the list holds it, and grows
    const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (end != nullptr) leaves.push_back(end->variable);
    std::ranges::for_each(node->next_edges(), add);
  }
  return leaves;
}

bool requires_grad(const std::vector<c10::IValue>& stack) {
  const auto asks = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  return std::ranges::any_of(stack, [&](const c10::IValue& value) {
    if (value.isTensor()) return asks(value.toTensor());
    if (value.isTensorList()) return std::ranges::any_of(value.toTensorVector(), asks);
    if (!value.isOptionalTensorList()) return false;
    return std::ranges::any_of(value.toOptionalTensorVector(),
                               [&](const auto& item) { return item.has_value() && asks(*item); });
  });
}

}  // namespace ftax
