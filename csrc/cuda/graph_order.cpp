// Kahn's algorithm with a heap instead of a queue, so that the smallest number goes first.
#include "cuda/graph_order.h"

#include <functional>
#include <queue>
#include <string>

#include "core/error.h"

namespace ftax::cuda {
namespace {

// The edges are as many as a chain needs, so each that joins neighbours leaves room for no other.
bool is_chain(const std::vector<std::size_t>& nodes, const std::vector<Edge>& edges) {
  if (nodes.empty()) return edges.empty();
  if (edges.size() != nodes.size() - 1) return false;
  std::vector<std::size_t> place(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) place[nodes[i]] = i;
  std::vector<bool> reached(nodes.size(), false);
  for (const Edge& edge : edges) {
    if (place[edge.to] != place[edge.from] + 1 || reached[edge.to]) return false;
    reached[edge.to] = true;
  }
  return true;
}

}  // namespace

Order order_nodes(std::size_t count, const std::vector<Edge>& edges) {
  std::vector<std::vector<std::size_t>> successors(count);
  std::vector<std::size_t> waiting(count, 0);
  for (const Edge& edge : edges) {
    if (edge.from >= count || edge.to >= count) {
      throw InvalidArgumentError("an edge from node " + std::to_string(edge.from) + " to node " +
                                 std::to_string(edge.to) + " in a graph of " +
                                 std::to_string(count) + " nodes");
    }
    successors[edge.from].push_back(edge.to);
    ++waiting[edge.to];
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t node = 0; node < count; ++node) {
    if (waiting[node] == 0) ready.push(node);
  }
  Order order{.nodes = {}, .is_chain = false};
  while (!ready.empty()) {
    const std::size_t node = ready.top();
    ready.pop();
    order.nodes.push_back(node);
    for (const std::size_t next : successors[node]) {
      if (--waiting[next] == 0) ready.push(next);
    }
  }
  if (order.nodes.size() != count) {
    throw InvalidArgumentError("the graph has a cycle: only " + std::to_string(order.nodes.size()) +
                               " of its " + std::to_string(count) + " nodes can be ordered");
  }
  order.is_chain = is_chain(order.nodes, edges);
  return order;
}

}  // namespace ftax::cuda
