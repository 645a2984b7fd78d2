// A captured graph as a plain list of launches: what a program without graphs would have issued.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "cuda/driver.h"
#include "cuda/launch_attributes.h"

namespace ftax::cuda {

struct KernelLaunch {
  CUlaunchConfig config;  // all but the stream and the attributes
  CUfunction function;    // or a CUkernel, which every launch function takes in its place
  std::string name;       // mangled
  void** parameters;      // belongs to the node, as does `extra`
  void** extra;
  std::vector<CUlaunchAttribute> attributes;
};

struct CopyLaunch {
  CUDA_MEMCPY3D parameters;
};

struct MemsetLaunch {
  CUDA_MEMSET_NODE_PARAMS parameters;  // its pitch is valid for one row too
};

using Launch = std::variant<KernelLaunch, CopyLaunch, MemsetLaunch>;

struct GraphLaunches {
  std::vector<Launch> launches;  // in an order that one stream may use
  bool is_chain;                 // that order is the only one
  // Programmatic edges (a kernel that may start before another has ended) that a stream cannot
  // express, because the two are not neighbours: here the later one waits for the end.
  std::size_t lost_programmatic_edges;
};

// The launches point into the graph: it must outlive them. Throws UnsupportedError for a node that
// is neither a kernel, a copy, a memset nor empty.
[[nodiscard]] GraphLaunches read_graph(const Driver& driver, CUgraph graph, Carveout carveout);

}  // namespace ftax::cuda
