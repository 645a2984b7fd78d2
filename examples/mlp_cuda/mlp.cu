// The two-layer perceptron of examples/mlp_c on a GPU, in fp32 or fp16, with one kernel a layer.
//
// No library. A warp computes one output value, which is far from what a tuned matrix product does
// for large batches and close to it for the few rows of a request; and the file builds with nvcc
// alone.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "ftax/runner.h"

namespace {

enum Slot { kFirstWeight, kFirstBias, kSecondWeight, kSecondBias, kInput, kOutput, kSlots };

struct Expected {
  int32_t kind;
  const char* name;
  int32_t ndim;
};

constexpr Expected kExpected[kSlots] = {
    {FTAX_WEIGHT, "first.weight", 2},  {FTAX_WEIGHT, "first.bias", 1},
    {FTAX_WEIGHT, "second.weight", 2}, {FTAX_WEIGHT, "second.bias", 1},
    {FTAX_INPUT, "input0", 2},         {FTAX_OUTPUT, "output0", 2},
};

struct Tensor {
  void* data = nullptr;
  int64_t shape[2] = {};
};

}  // namespace

struct ftax_runner {
  Tensor slots[kSlots];
  int32_t dtype = -1;  // of the first tensor that was bound; the others have to have it too
  void* hidden = nullptr;
  size_t hidden_bytes = 0;
  bool ready = false;  // shapes agree and scratch is there
  char error[200] = {};
};

namespace {

thread_local char create_error[200];

constexpr int kWarp = 32, kWarpsPerBlock = 8;

// One warp a value of `out`: each lane sums every 32nd product, then the lanes add up.
template <typename T, bool kRelu>
__global__ void linear(const T* in, const T* weight, const T* bias, T* out, int64_t values,
                       int64_t columns, int64_t depth) {
  const int64_t value = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
  if (value >= values) return;  // the whole warp leaves
  const int lane = threadIdx.x % kWarp;
  const T* a = in + value / columns * depth;
  const T* b = weight + value % columns * depth;
  float sum = 0;
  for (int64_t k = lane; k < depth; k += kWarp) {
    sum += static_cast<float>(a[k]) * static_cast<float>(b[k]);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    sum += __shfl_down_sync(0xffffffffu, sum, step);
  }
  if (lane != 0) return;
  sum += static_cast<float>(bias[value % columns]);
  out[value] = static_cast<T>(kRelu && sum < 0 ? 0.0f : sum);
}

int32_t fail(ftax_runner* runner, const char* name, const char* what) {
  std::snprintf(runner->error, sizeof runner->error, "%s: %s", name, what);
  return FTAX_ERROR;
}

int32_t check(ftax_runner* runner, cudaError_t code, const char* call) {
  return code == cudaSuccess ? FTAX_OK : fail(runner, call, cudaGetErrorString(code));
}

int32_t create(const char* config, const ftax_context* context, ftax_runner** runner) {
  if (*config != '\0') {
    std::snprintf(create_error, sizeof create_error, "there are no options, got '%.100s'", config);
    return FTAX_ERROR;
  }
  if (context->device_type != FTAX_DEVICE_CUDA) {
    std::snprintf(create_error, sizeof create_error, "this runtime has only a CUDA half");
    return FTAX_UNSUPPORTED;
  }
  *runner = new (std::nothrow) ftax_runner;
  if (*runner != nullptr) return FTAX_OK;
  std::snprintf(create_error, sizeof create_error, "out of memory");
  return FTAX_ERROR;
}

int find_slot(int32_t kind, const char* name) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (kExpected[slot].kind == kind && std::strcmp(kExpected[slot].name, name) == 0) return slot;
  }
  return -1;
}

int32_t bind(ftax_runner* runner, int32_t kind, const char* name, const ftax_tensor* tensor) {
  const int slot = find_slot(kind, name);
  if (slot < 0) return fail(runner, name, "no such tensor in a perceptron of two layers");
  if (tensor->ndim != kExpected[slot].ndim) {
    return fail(runner, name, "wrong number of dimensions");
  }
  if (tensor->dtype != FTAX_FLOAT32 && tensor->dtype != FTAX_FLOAT16) {
    return fail(runner, name, "has to be fp32 or fp16");
  }
  if (runner->dtype >= 0 && tensor->dtype != runner->dtype) {
    return fail(runner, name, "its dtype is not that of the tensors before it");
  }
  Tensor& bound = runner->slots[slot];
  runner->dtype = tensor->dtype;
  bound.data = tensor->data;
  std::memcpy(bound.shape, tensor->shape, static_cast<size_t>(tensor->ndim) * sizeof(int64_t));
  return FTAX_OK;
}

// What the first enqueue does.
int32_t prepare(ftax_runner* runner) {
  const Tensor* s = runner->slots;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (s[slot].data == nullptr) return fail(runner, kExpected[slot].name, "is not bound");
  }
  const int64_t rows = s[kInput].shape[0], hidden = s[kFirstWeight].shape[0];
  const int64_t columns = s[kSecondWeight].shape[0];
  if (s[kInput].shape[1] != s[kFirstWeight].shape[1] || s[kFirstBias].shape[0] != hidden ||
      s[kSecondWeight].shape[1] != hidden || s[kSecondBias].shape[0] != columns ||
      s[kOutput].shape[0] != rows || s[kOutput].shape[1] != columns) {
    return fail(runner, "input0", "its shape does not fit the others");
  }
  const size_t element = runner->dtype == FTAX_FLOAT32 ? sizeof(float) : sizeof(__half);
  runner->hidden_bytes = static_cast<size_t>(rows * hidden) * element;
  if (check(runner, cudaMalloc(&runner->hidden, runner->hidden_bytes), "cudaMalloc") != FTAX_OK) {
    return FTAX_ERROR;
  }
  runner->ready = true;
  return FTAX_OK;
}

template <typename T, bool kRelu>
void launch(const void* in, const Tensor& weight, const Tensor& bias, void* out, int64_t rows,
            cudaStream_t stream) {
  const int64_t columns = weight.shape[0], values = rows * columns;
  const auto blocks = static_cast<unsigned>((values + kWarpsPerBlock - 1) / kWarpsPerBlock);
  if (blocks == 0) return;  // an empty batch
  linear<T, kRelu><<<blocks, kWarp * kWarpsPerBlock, 0, stream>>>(
      static_cast<const T*>(in), static_cast<const T*>(weight.data),
      static_cast<const T*>(bias.data), static_cast<T*>(out), values, columns, weight.shape[1]);
}

template <typename T>
void launch_both(const ftax_runner& runner, cudaStream_t stream) {
  const Tensor* s = runner.slots;
  const int64_t rows = s[kInput].shape[0];
  launch<T, true>(s[kInput].data, s[kFirstWeight], s[kFirstBias], runner.hidden, rows, stream);
  launch<T, false>(runner.hidden, s[kSecondWeight], s[kSecondBias], s[kOutput].data, rows, stream);
}

int32_t enqueue(ftax_runner* runner, void* stream) {
  if (!runner->ready) {
    const int32_t status = prepare(runner);
    if (status != FTAX_OK) return status;
  }
  if (runner->dtype == FTAX_FLOAT32) {
    launch_both<float>(*runner, static_cast<cudaStream_t>(stream));
  } else {
    launch_both<__half>(*runner, static_cast<cudaStream_t>(stream));
  }
  return check(runner, cudaGetLastError(), "launch");  // asks the host, not the device
}

void destroy(ftax_runner* runner) {
  cudaFree(runner->hidden);
  delete runner;
}

const char* last_error(const ftax_runner* runner) {
  return runner != nullptr ? runner->error : create_error;
}

}  // namespace

extern "C" const ftax_runner_api* ftax_get_runner_api(void) {
  static const ftax_runner_api api = {
      FTAX_RUNNER_ABI_VERSION,
      sizeof(ftax_runner_api),
      FTAX_RUNS_ON_CUDA,
      "mlp-in-cuda",
      create,
      bind,
      enqueue,
      destroy,
      last_error,
      nullptr,  // synchronize is the CPU's
      nullptr,  // prepare: nothing is to be put back
  };
  return &api;
}
