/* A two-layer perceptron on the CPU, as a runtime of ftax: output = second(relu(first(input))).
 * docs/extending.md goes through this file from top to bottom.
 *
 * Shapes are checked when all tensors are bound, in the first enqueue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftax/runner.h"

enum { FIRST_WEIGHT, FIRST_BIAS, SECOND_WEIGHT, SECOND_BIAS, INPUT, OUTPUT, SLOTS };

/* Every tensor that this runtime knows. Those of two dimensions are matrices. */
static const struct {
  int32_t kind;
  const char* name;
  int32_t ndim;
} kSlots[SLOTS] = {
    {FTAX_WEIGHT, "first.weight", 2},  {FTAX_WEIGHT, "first.bias", 1},
    {FTAX_WEIGHT, "second.weight", 2}, {FTAX_WEIGHT, "second.bias", 1},
    {FTAX_INPUT, "input0", 2},         {FTAX_OUTPUT, "output0", 2},
};

typedef struct {
  float* data;
  int64_t shape[2];
} matrix;

struct ftax_runner {
  matrix slots[SLOTS];
  float* hidden; /* scratch: one row a request */
  int ready;     /* shapes agree and scratch is there */
  char error[200];
};

static _Thread_local char create_error[200];

static int32_t create(const char* config, const ftax_context* context, ftax_runner** runner) {
  if (*config != '\0') {
    snprintf(create_error, sizeof create_error, "there are no options, got '%.100s'", config);
    return FTAX_ERROR;
  }
  if (context->device_type != FTAX_DEVICE_CPU) {
    snprintf(create_error, sizeof create_error, "this runtime has only a CPU half");
    return FTAX_UNSUPPORTED;
  }
  *runner = calloc(1, sizeof **runner); /* context->threads: this runtime uses one */
  if (*runner == NULL) {
    snprintf(create_error, sizeof create_error, "out of memory");
    return FTAX_ERROR;
  }
  return FTAX_OK;
}

static int32_t fail(ftax_runner* runner, const char* what, const char* name) {
  snprintf(runner->error, sizeof runner->error, "%s: %s", name, what);
  return FTAX_ERROR;
}

static int32_t bind(ftax_runner* runner, int32_t kind, const char* name,
                    const ftax_tensor* tensor) {
  for (int slot = 0; slot < SLOTS; ++slot) {
    if (kSlots[slot].kind != kind || strcmp(kSlots[slot].name, name) != 0) continue;
    if (tensor->dtype != FTAX_FLOAT32) return fail(runner, "has to be fp32", name);
    if (tensor->ndim != kSlots[slot].ndim) return fail(runner, "wrong number of dimensions", name);
    matrix* bound = &runner->slots[slot];
    bound->data = tensor->data;
    memcpy(bound->shape, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
    return FTAX_OK;
  }
  return fail(runner, "no such tensor in a perceptron of two layers", name);
}

/* What the first enqueue does. */
static int32_t prepare(ftax_runner* runner) {
  const matrix* s = runner->slots;
  for (int slot = 0; slot < SLOTS; ++slot) {
    if (s[slot].data == NULL) return fail(runner, "is not bound", kSlots[slot].name);
  }
  const int64_t rows = s[INPUT].shape[0], hidden = s[FIRST_WEIGHT].shape[0];
  const int64_t columns = s[SECOND_WEIGHT].shape[0];
  if (s[INPUT].shape[1] != s[FIRST_WEIGHT].shape[1] || s[FIRST_BIAS].shape[0] != hidden ||
      s[SECOND_WEIGHT].shape[1] != hidden || s[SECOND_BIAS].shape[0] != columns ||
      s[OUTPUT].shape[0] != rows || s[OUTPUT].shape[1] != columns) {
    return fail(runner, "its shape does not fit the others", "input0");
  }
  runner->hidden = malloc((size_t)(rows * hidden) * sizeof(float));
  if (runner->hidden == NULL) return fail(runner, "out of memory for hidden values", "enqueue");
  runner->ready = 1;
  return FTAX_OK;
}

/* out = in x weight^T + bias, and nothing below zero if `relu`. torch's Linear has this layout. */
static void linear(const float* in, int64_t rows, const matrix* weight, const float* bias, int relu,
                   float* out) {
  const int64_t columns = weight->shape[0], depth = weight->shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      float sum = bias[column];
      for (int64_t k = 0; k < depth; ++k) {
        sum += in[row * depth + k] * weight->data[column * depth + k];
      }
      out[row * columns + column] = relu && sum < 0 ? 0 : sum;
    }
  }
}

static int32_t enqueue(ftax_runner* runner, void* stream) {
  (void)stream; /* null on the CPU */
  if (!runner->ready) {
    const int32_t status = prepare(runner);
    if (status != FTAX_OK) return status;
  }
  const matrix* s = runner->slots;
  const int64_t rows = s[INPUT].shape[0];
  linear(s[INPUT].data, rows, &s[FIRST_WEIGHT], s[FIRST_BIAS].data, 1, runner->hidden);
  linear(runner->hidden, rows, &s[SECOND_WEIGHT], s[SECOND_BIAS].data, 0, s[OUTPUT].data);
  return FTAX_OK;
}

static void destroy(ftax_runner* runner) {
  free(runner->hidden);
  free(runner);
}

static const char* last_error(const ftax_runner* runner) {
  return runner != NULL ? runner->error : create_error;
}

const ftax_runner_api* ftax_get_runner_api(void) {
  static const ftax_runner_api api = {
      .abi_version = FTAX_RUNNER_ABI_VERSION,
      .struct_size = sizeof(ftax_runner_api),
      .capabilities = FTAX_RUNS_ON_CPU,
      .name = "mlp-in-c",
      .create = create,
      .bind = bind,
      .enqueue = enqueue,
      .destroy = destroy,
      .last_error = last_error,
      /* no synchronize: enqueue has done the work; no prepare: nothing is to be put back */
  };
  return &api;
}
