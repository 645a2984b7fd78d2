// The order in which one stream can do the work of a graph.
#include <vector>

#include "check.h"
#include "core/error.h"
#include "cuda/graph_order.h"

namespace ftax::cuda {
namespace {

using Nodes = std::vector<std::size_t>;

TEST(a_chain_is_recognised_whatever_its_nodes_are_called) {
  const Order order = order_nodes(4, {{2, 0}, {0, 3}, {3, 1}});
  CHECK((order.nodes == Nodes{2, 0, 3, 1}));
  CHECK(order.is_chain);
}

TEST(no_node_and_one_node_are_chains) {
  CHECK(order_nodes(0, {}).is_chain);
  CHECK(order_nodes(1, {}).is_chain);
  CHECK((order_nodes(1, {}).nodes == Nodes{0}));
}

TEST(a_fork_that_joins_is_ordered_and_is_no_chain) {
  const Order order = order_nodes(4, {{0, 2}, {0, 1}, {1, 3}, {2, 3}});
  CHECK((order.nodes == Nodes{0, 1, 2, 3}));
  CHECK(!order.is_chain);
}

TEST(nodes_without_edges_keep_their_order_and_are_no_chain) {
  const Order order = order_nodes(3, {});
  CHECK((order.nodes == Nodes{0, 1, 2}));
  CHECK(!order.is_chain);
}

TEST(a_skipping_edge_beside_a_chain_makes_it_no_chain) {
  CHECK(!order_nodes(3, {{0, 1}, {1, 2}, {0, 2}}).is_chain);
}

TEST(as_many_edges_as_a_chain_do_not_make_a_chain) {
  CHECK(!order_nodes(3, {{0, 1}, {0, 2}}).is_chain);
  CHECK(!order_nodes(3, {{0, 1}, {0, 1}}).is_chain);
}

TEST(a_node_that_is_ready_early_still_waits_for_what_it_depends_on) {
  const Order order = order_nodes(4, {{3, 0}, {1, 2}});
  CHECK((order.nodes == Nodes{1, 2, 3, 0}));
}

TEST(cycles_and_unknown_nodes_are_refused) {
  CHECK_THROWS(order_nodes(3, {{0, 1}, {1, 2}, {2, 1}}), InvalidArgumentError, "only 1 of its 3");
  CHECK_THROWS(order_nodes(2, {{0, 2}}), InvalidArgumentError, "from node 0 to node 2");
}

}  // namespace
}  // namespace ftax::cuda
