// The order in which one stream can do the work of a graph. A stream does one thing after another,
// which is a valid schedule of any graph; whether it is the graph's only schedule is worth knowing.
#pragma once

#include <cstddef>
#include <vector>

namespace ftax::cuda {

struct Edge {
  std::size_t from;
  std::size_t to;
  bool programmatic = false;  // the later kernel may start before the earlier one has ended
};

struct Order {
  std::vector<std::size_t> nodes;  // every node after all that it depends on
  bool is_chain;                   // each node depends on the one before it and on no other
};

// Of several orders, the one that keeps closest to 0, 1, 2, ...: the order of the capture.
// Throws InvalidArgumentError for an edge to a node that is not there, and for a cycle.
[[nodiscard]] Order order_nodes(std::size_t count, const std::vector<Edge>& edges);

}  // namespace ftax::cuda
