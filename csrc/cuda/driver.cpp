// Each function is asked for at the version whose signature the header declares: asking for "the
// newest" would bring another signature one day.
#include "cuda/driver.h"

#include <cuda_runtime_api.h>

#include <string>

#include "core/error.h"

namespace ftax::cuda {
namespace {

// `version` is 1000 * major + 10 * minor, as in the name of the function's type.
template <typename Function>
void resolve(Function& function, const char* name, unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &status);
  if (code != cudaSuccess || status != cudaDriverEntryPointSuccess || address == nullptr) {
    static_cast<void>(cudaGetLastError());
    throw UnavailableError(std::string("the CUDA driver has no ") + name + " of CUDA " +
                           std::to_string(version / 1000) + "." +
                           std::to_string(version % 1000 / 10) + " (" + cudaGetErrorString(code) +
                           "); install a driver for CUDA 12.3 or newer");
  }
  function = reinterpret_cast<Function>(address);
}

Driver load() {
  Driver driver{};
  resolve(driver.get_error_name, "cuGetErrorName", 6000);
  resolve(driver.get_error_string, "cuGetErrorString", 6000);
  resolve(driver.graph_get_nodes, "cuGraphGetNodes", 10000);
  resolve(driver.graph_get_edges, "cuGraphGetEdges", 12030);
  resolve(driver.graph_node_get_type, "cuGraphNodeGetType", 10000);
  resolve(driver.graph_kernel_node_get_params, "cuGraphKernelNodeGetParams", 12000);
  resolve(driver.graph_kernel_node_get_attribute, "cuGraphKernelNodeGetAttribute", 11000);
  resolve(driver.graph_memcpy_node_get_params, "cuGraphMemcpyNodeGetParams", 10000);
  resolve(driver.graph_memset_node_get_params, "cuGraphMemsetNodeGetParams", 10000);
  resolve(driver.func_get_name, "cuFuncGetName", 12030);
  resolve(driver.kernel_get_name, "cuKernelGetName", 12030);
  resolve(driver.launch_kernel_ex, "cuLaunchKernelEx", 11060);
  resolve(driver.memcpy_3d_async, "cuMemcpy3DAsync", 3020);
  resolve(driver.memset_d2d8_async, "cuMemsetD2D8Async", 3020);
  resolve(driver.memset_d2d16_async, "cuMemsetD2D16Async", 3020);
  resolve(driver.memset_d2d32_async, "cuMemsetD2D32Async", 3020);
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver = load();
  return driver;
}

}  // namespace ftax::cuda
