// Reading and setting the state of a generator as operators, which a recording can hold: activation
// checkpointing draws the numbers of the forward pass again in the backward pass. Python's
// functions of the same names make no operator call.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

#include <mutex>

namespace ftax {
namespace {

at::Generator choose(const std::optional<at::Generator>& generator) {
  return generator.has_value() ? *generator : at::detail::getDefaultCPUGenerator();
}

at::Tensor get_rng_state(const std::optional<at::Generator>& generator) {
  at::Generator chosen = choose(generator);
  const std::scoped_lock lock(chosen.mutex());
  return chosen.get_state();
}

void set_rng_state(const at::Tensor& state, const std::optional<at::Generator>& generator) {
  at::Generator chosen = choose(generator);
  const std::scoped_lock lock(chosen.mutex());
  chosen.set_state(state);
}

}  // namespace

TORCH_LIBRARY(ftax, library) {
  library.def("get_rng_state(*, Generator? generator=None) -> Tensor",
              {at::Tag::nondeterministic_seeded});
  library.def("set_rng_state(Tensor state, *, Generator? generator=None) -> ()");
}

// The one key that a call without tensors has.
TORCH_LIBRARY_IMPL(ftax, BackendSelect, library) { library.impl("get_rng_state", get_rng_state); }

TORCH_LIBRARY_IMPL(ftax, CompositeExplicitAutograd, library) {
  library.impl("set_rng_state", set_rng_state);
}

}  // namespace ftax
