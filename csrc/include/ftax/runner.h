/* The interface of a runtime that ftax did not write: a shared library exports one function, *
ftax_get_runner_api, which returns a table of functions. docs/extending.md builds one. * * Plain C,
so that any language that makes a shared library can speak it. * weights arrive through `bind`, one
named tensor at a time, as inputs and outputs do. A library * reads no file and needs no format. * *
The order of calls on one runner is * * create, bind (every weight, input and output, once), then
any number of inferences, then * destroy. * * An inference is prepare (if there is one), enqueue,
and a wait: on CUDA ftax's own wait for the * stream, the same as for every runtime that it times,
and on the CPU the library's synchronize (if * there is one). enqueue and that wait are timed,
prepare is not. * * ftax never makes two calls on one runner at the same time, but may make them
from different * threads. Two runners are independent of each other. On CUDA, the runner's device is
the calling * thread's current device in every call, destroy among them. * * How it grows: structs
only get longer, at their ends, and each says how long its maker made it. * What lies past
`struct_size` is absent: an absent function counts as null, which ftax takes where * a function is
optional, and a field that a library knows and a context lacks is not to be read. A * struct may
also be longer than its reader knows; the rest is not the reader's. */
#ifndef FTAX_RUNNER_H
#define FTAX_RUNNER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised by a change after which an older library would misbehave, not by one that only adds.
 *   2: context and tensor say how long they are; synchronize is for the CPU alone, optional, and
 *      stands behind what is not. */
#define FTAX_RUNNER_ABI_VERSION 2u

/* What functions that can fail return. Any other value counts as FTAX_ERROR. */
enum {
  FTAX_OK = 0,
  FTAX_ERROR = 1,      /* it failed; last_error says why */
  FTAX_UNSUPPORTED = 2 /* this library cannot do it, on any machine; last_error says what */
};

enum { FTAX_DEVICE_CPU = 0, FTAX_DEVICE_CUDA = 1 };

enum {
  FTAX_FLOAT32 = 0,
  FTAX_FLOAT16 = 1,
  FTAX_BFLOAT16 = 2,
  FTAX_FLOAT64 = 3,
  FTAX_INT8 = 4,
  FTAX_INT16 = 5,
  FTAX_INT32 = 6,
  FTAX_INT64 = 7,
  FTAX_UINT8 = 8,
  FTAX_BOOL = 9 /* one byte, 0 or 1 */
};

enum { FTAX_WEIGHT = 0, FTAX_INPUT = 1, FTAX_OUTPUT = 2 };

/* Bits of `capabilities`. */
#define FTAX_RUNS_ON_CPU (UINT64_C(1) << 0)
#define FTAX_RUNS_ON_CUDA (UINT64_C(1) << 1)

/* Memory that ftax owns: contiguous, in row-major order, on the device of the runner. */
typedef struct ftax_tensor {
  uint32_t struct_size; /* sizeof(ftax_tensor), to ftax */
  int32_t dtype;        /* FTAX_FLOAT32 and so on */
  void* data;           /* a device pointer on CUDA */
  const int64_t* shape; /* `ndim` sizes; gone when bind returns, so copy what you keep */
  int64_t ndim;
} ftax_tensor;

/* Where and how to run, and what is asking; gone when create returns. */
typedef struct ftax_context {
  uint32_t struct_size; /* sizeof(ftax_context), to ftax */
  uint32_t abi_version; /* FTAX_RUNNER_ABI_VERSION, to ftax: yours, or one that still takes it */
  uint32_t api_size;    /* sizeof(ftax_runner_api), to ftax: what lies past it is never called */
  int32_t device_type;  /* FTAX_DEVICE_CPU or FTAX_DEVICE_CUDA */
  int32_t device_index; /* 0 on the CPU */
  int32_t threads;      /* CPU threads that one inference may use: what torch uses here */
} ftax_context;

/* Yours: define a struct of this name, or cast. */
typedef struct ftax_runner ftax_runner;

typedef struct ftax_runner_api {
  /* These two come first in every version. */
  uint32_t abi_version;  /* FTAX_RUNNER_ABI_VERSION */
  uint32_t struct_size;  /* sizeof(ftax_runner_api), to the library */
  uint64_t capabilities; /* FTAX_RUNS_ON_CPU, ... */
  const char* name;      /* for tables, such as "my-mlp" */

  /* Makes a runner. `config` is what the user wrote after the library's path and a question mark;
   * "" if nothing. A config that the library does not understand is an error. */
  int32_t (*create)(const char* config, const ftax_context* context, ftax_runner** runner);

  /* Hands over a tensor. Weights come first, under the names of the model's state dict
   * ("first.weight"), then inputs ("input0", "input1", ...), then outputs ("output0", ...). The
   * memory stays at this address until destroy; what is in it may change between two calls of
   * enqueue. Refuse a name, dtype or shape that you do not expect. */
  int32_t (*bind)(ftax_runner* runner, int32_t kind, const char* name, const ftax_tensor* tensor);

  /* Issues one inference on `stream`, a cudaStream_t on CUDA and null on the CPU, and returns
   * without waiting for it. The inference is done when the stream is: work on another stream has to
   * wait for this one, and this one for it. The first call may prepare what is still
   * missing (scratch memory, plans). Later calls may not allocate or free memory, copy between host
   * and device, or wait for the device. On the CPU the inference may be done when it returns. */
  int32_t (*enqueue)(ftax_runner* runner, void* stream);

  /* Frees the runner; never called with null. Nothing is in flight by then. */
  void (*destroy)(ftax_runner* runner);

  /* Why the last call on this runner failed, in one line; with null, why the last create of this
   * thread failed. Valid until the next call. No exception may leave any of these functions. */
  const char* (*last_error)(const ftax_runner* runner);

  /* All from here on are optional: null or absent means what is said there. */

  /* On the CPU: returns when all that was enqueued has finished. Null: it has when enqueue returns.
   * `stream` is null. Never called on CUDA, where ftax waits for the stream. */
  int32_t (*synchronize)(ftax_runner* runner, void* stream);

  /* Puts back what an inference changes beside its outputs (a position in a cache, a counter), so
   * that each starts from the same state. Null: there is no such state. Called before each enqueue,
   * timed or not, and not part of its time; ftax waits for what it put on `stream`. It may be
   * called twice in a row. It may allocate, copy and wait, and may do nothing of the inference
   * itself: inputs may change until enqueue. A runner that has to be prepared has a latency and no
   * throughput, since requests back to back leave no place for it. */
  int32_t (*prepare)(ftax_runner* runner, void* stream);
} ftax_runner_api;

#if defined(__GNUC__)
#define FTAX_EXPORT __attribute__((visibility("default")))
#else
#define FTAX_EXPORT
#endif

/* The one symbol that a library exports. The table has to live as long as the process. */
FTAX_EXPORT const ftax_runner_api* ftax_get_runner_api(void);

#ifdef __cplusplus
}
#endif

#endif /* FTAX_RUNNER_H */
