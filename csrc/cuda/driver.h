// The functions of the CUDA driver that ftax calls, and no others. libcuda is never linked, because
// a machine without a driver must still import ftax: the runtime, which torch brings, finds them.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

namespace ftax::cuda {

struct Driver {
  // Resolved once a process. Throws UnavailableError naming the function that is missing.
  [[nodiscard]] static const Driver& get();

  PFN_cuGetErrorName_v6000 get_error_name;
  PFN_cuGetErrorString_v6000 get_error_string;
  PFN_cuGraphGetNodes_v10000 graph_get_nodes;
  PFN_cuGraphGetEdges_v12030 graph_get_edges;
  PFN_cuGraphNodeGetType_v10000 graph_node_get_type;
  PFN_cuGraphKernelNodeGetParams_v12000 graph_kernel_node_get_params;
  PFN_cuGraphKernelNodeGetAttribute_v11000 graph_kernel_node_get_attribute;
  PFN_cuGraphMemcpyNodeGetParams_v10000 graph_memcpy_node_get_params;
  PFN_cuGraphMemsetNodeGetParams_v10000 graph_memset_node_get_params;
  PFN_cuFuncGetName_v12030 func_get_name;
  PFN_cuKernelGetName_v12030 kernel_get_name;
  PFN_cuLaunchKernelEx_v11060 launch_kernel_ex;
  PFN_cuMemcpy3DAsync_v3020 memcpy_3d_async;
  PFN_cuMemsetD2D8Async_v3020 memset_d2d8_async;
  PFN_cuMemsetD2D16Async_v3020 memset_d2d16_async;
  PFN_cuMemsetD2D32Async_v3020 memset_d2d32_async;

  // Throws RunnerError unless `code` is CUDA_SUCCESS.
  void check(CUresult code, const char* call) const {
    if (code != CUDA_SUCCESS) [[unlikely]] {
      fail(code, call);
    }
  }
  [[nodiscard]] const char* name_error(CUresult code) const;

 private:
  [[noreturn]] void fail(CUresult code, const char* call) const;
};

}  // namespace ftax::cuda
