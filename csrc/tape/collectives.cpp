// The stand-in of a group is made once, and stays among its backends under a type that no backend
// has. See Note [Collectives without other ranks].
#include "tape/collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <functional>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>

#include "core/clock.h"
#include "core/error.h"

namespace ftax {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

constexpr auto kOurs = c10d::ProcessGroup::BackendType::UNDEFINED;

// Of the thread. Autograd's threads have it too while they run its backward passes.
struct Mark final : c10::DebugInfoBase {};

bool is_marked() {
  const auto* const info = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2);
  return dynamic_cast<const Mark*>(info) != nullptr;
}

std::atomic<bool> is_any_open = false;

class Done final : public c10d::Work {
 public:
  explicit Done(Tensors result) : result_(std::move(result)) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  void synchronize() override {}
  Tensors result() override { return result_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::vector<c10::Device> devices;
    if (!result_.empty() && result_[0].is_cuda()) devices.push_back(result_[0].device());
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), devices);
    future->markCompleted(c10::IValue(result_));
    return future;
  }

 private:
  Tensors result_;
};

Tensors copy(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

// `output` holds the elements of `input`, again and again.
void repeat_into(const at::Tensor& output, const at::Tensor& input) {
  if (output.numel() == 0 || input.numel() == 0) return;
  const int64_t times = (output.numel() + input.numel() - 1) / input.numel();
  output.copy_(input.reshape(-1).repeat({times}).narrow(0, 0, output.numel()).view(output.sizes()));
}

}  // namespace

class StandIn final : public c10d::Backend {
 public:
  StandIn(int rank, int size, std::string group) : Backend(rank, size), group_(std::move(group)) {}

  void open(Collectives* collectives, c10::DeviceType device, const BackendPtr& real) {
    collectives_ = collectives;
    if (BackendPtr& known = real_[device]; known != real) known = real;
  }
  // Gives each device its own backend back. Other threads may be on the way into this one still.
  void close(const Group& group) {
    for (const auto& [device, real] : real_) {
      group->setBackend(device, c10d::ProcessGroup::strToBackendType(real->getBackendName()), real);
    }
    collectives_ = nullptr;
  }

  const std::string getBackendName() const override { return "stand-in of ftax"; }
  void setTimeout(std::chrono::milliseconds /*timeout*/) override {}
  bool supportsCoalescing() const override {
    return !real_.empty() && real_.begin()->second->supportsCoalescing();
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return answer(name("all_reduce", options.reduceOp), tensors, tensors, is_sum(options.reduceOp),
                  [&](c10d::Backend& real) { return real.allreduce(tensors, options); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return answer(name("all_reduce of several", options.reduceOp), tensors, tensors,
                  is_sum(options.reduceOp),
                  [&](c10d::Backend& real) { return real.allreduce_coalesced(tensors, options); });
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return answer(name("broadcast", options.rootRank), tensors, tensors, false,
                  [&](c10d::Backend& real) { return real.broadcast(tensors, options); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return answer(name("reduce", options.reduceOp, options.rootRank), tensors, tensors,
                  is_sum(options.reduceOp),
                  [&](c10d::Backend& real) { return real.reduce(tensors, options); });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return answer(
        name("all_gather_into_tensor"), {input}, {output}, false,
        [&](c10d::Backend& real) { return real._allgather_base(output, input, options); });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return answer(name("all_gather of several"), inputs, outputs, false, [&](c10d::Backend& real) {
      return real.allgather_into_tensor_coalesced(outputs, inputs, options);
    });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return answer(name("reduce_scatter_tensor", options.reduceOp), {input}, {output},
                  is_sum(options.reduceOp), [&](c10d::Backend& real) {
                    return real._reduce_scatter_base(output, input, options);
                  });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return answer(name("reduce_scatter of several", options.reduceOp), inputs, outputs,
                  is_sum(options.reduceOp), [&](c10d::Backend& real) {
                    return real.reduce_scatter_tensor_coalesced(outputs, inputs, options);
                  });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override {
    return answer(name("all_to_all_single", output_sizes, input_sizes), {input}, {output}, false,
                  [&](c10d::Backend& real) {
                    return real.alltoall_base(output, input, output_sizes, input_sizes, options);
                  });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return answer(name("barrier"), {}, {}, false,
                  [&](c10d::Backend& real) { return real.barrier(options); });
  }

  // What a tape cannot hold is refused when the run has ended: an error in the middle of a backward
  // pass would leave DistributedDataParallel waiting for the rest of it.
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return refuse("all_gather into a list of tensors: call all_gather_into_tensor", outputs,
                  [&](c10d::Backend& real) { return real.allgather(outputs, inputs, options); });
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return refuse(
        "reduce_scatter of a list of tensors: call reduce_scatter_tensor", {outputs},
        [&](c10d::Backend& real) { return real.reduce_scatter(outputs, inputs, options); });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override {
    return refuse("all_to_all of lists of tensors: call all_to_all_single", {outputs},
                  [&](c10d::Backend& real) { return real.alltoall(outputs, inputs, options); });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return refuse("gather: call all_gather_into_tensor, or gather outside of the call", outputs,
                  [&](c10d::Backend& real) { return real.gather(outputs, inputs, options); });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return refuse("scatter: scatter outside of the call", {outputs},
                  [&](c10d::Backend& real) { return real.scatter(outputs, inputs, options); });
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return refuse(kPair, {}, [&](c10d::Backend& real) { return real.send(tensors, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return refuse(kPair, {tensors},
                  [&](c10d::Backend& real) { return real.recv(tensors, from, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return refuse(kPair, {tensors},
                  [&](c10d::Backend& real) { return real.recvAnysource(tensors, tag); });
  }
  void startCoalescing() override {
    refuse("several collectives as one (a coalescing manager): call them one by one", {},
           [](c10d::Backend& real) {
             real.startCoalescing();
             return WorkPtr();
           });
  }
  WorkPtr endCoalescing() override {
    if (find_open() == nullptr) return find_real({}).endCoalescing();
    return c10::make_intrusive<Done>(Tensors{});
  }

 private:
  static constexpr auto kPair = "send or recv, as a pipeline does: capture a part between them";

  template <class... Facts>
  [[nodiscard]] std::string name(const Facts&... facts) const {
    return c10::str("group ", group_, ":", describe(facts)...);
  }
  static std::string describe(const c10d::ReduceOp& op) { return c10::str(" op ", int{op.op_}); }
  template <class T>
  static std::string describe(const T& value) {
    return c10::str(" ", value);
  }

  // Null for calls that are the other ranks' to answer.
  [[nodiscard]] Collectives* find_open() const {
    return is_marked() ? collectives_.load() : nullptr;
  }
  static bool is_sum(const c10d::ReduceOp& op) { return op.op_ == c10d::ReduceOp::SUM; }

  WorkPtr refuse(const std::string& what, const std::vector<Tensors>& outputs,
                 const std::function<WorkPtr(c10d::Backend&)>& communicate) {
    Collectives* const open = find_open();
    if (open == nullptr) {
      return communicate(find_real(outputs.empty() ? Tensors{} : outputs[0]));
    }
    if (open->refusal_.empty()) open->refusal_ = "it calls " + what;
    const at::AutoDispatchBelowADInplaceOrView below;
    for (const Tensors& tensors : outputs) {
      for (const at::Tensor& tensor : tensors) tensor.zero_();
    }
    return c10::make_intrusive<Done>(Tensors{});
  }

  [[nodiscard]] c10d::Backend& find_real(const Tensors& tensors) const {
    const auto found = tensors.empty() ? real_.begin() : real_.find(tensors[0].device().type());
    TORCH_CHECK(found != real_.end(), "no backend of group ", group_, " has such a device");
    return *found->second;
  }

  WorkPtr answer(std::string what, const Tensors& inputs, const Tensors& outputs, bool sums,
                 const std::function<WorkPtr(c10d::Backend&)>& communicate) {
    Collectives* const open = find_open();
    if (open == nullptr) return communicate(find_real(inputs));
    const at::AutoDispatchBelowADInplaceOrView below;  // as kernels of a backend write
    switch (open->answer_) {
      case Collectives::Answer::kAlone:
        answer_alone(inputs, outputs, sums);
        break;
      case Collectives::Answer::kLogged: {
        Collective kept{std::move(what), copy(inputs), {}};
        if (const WorkPtr work = communicate(find_real(inputs))) work->wait();
        kept.outputs = copy(outputs);
        open->kept_.push_back(std::move(kept));
        break;
      }
      case Collectives::Answer::kTimed:
      case Collectives::Answer::kAligned:
        answer_timed(*open, find_real(inputs), inputs, communicate);
        break;
      case Collectives::Answer::kKept:
        answer_as_kept(*open, std::move(what), inputs, outputs);
        break;
    }
    return c10::make_intrusive<Done>(outputs);
  }

  void answer_alone(const Tensors& inputs, const Tensors& outputs, bool sums) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].is_same(inputs[i])) repeat_into(outputs[i], inputs[i]);
      if (sums && outputs[i].scalar_type() != at::kBool) outputs[i].mul_(getSize());
    }
  }

  // Without a barrier before it, its time is also that for which other ranks are late.
  static void answer_timed(Collectives& open, c10d::Backend& real, const Tensors& inputs,
                           const std::function<WorkPtr(c10d::Backend&)>& communicate) {
    if (open.answer_ == Collectives::Answer::kAligned) {
      c10d::BarrierOptions options;
      if (!inputs.empty() && inputs[0].is_cuda()) options.device_ids = {inputs[0].get_device()};
      synchronize(inputs);
      if (const WorkPtr work = real.barrier(options)) work->wait();
    }
    synchronize(inputs);
    const int64_t start = now_ns();
    if (const WorkPtr work = communicate(real)) work->wait();
    synchronize(inputs);
    open.time_ns_ += now_ns() - start;
    ++open.timed_;
  }

  // Waits for what the device was given before.
  static void synchronize(const Tensors& tensors) {
    if (tensors.empty() || !tensors[0].is_cuda()) return;
    const c10::Device device = tensors[0].device();
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }

  static void answer_as_kept(Collectives& open, std::string what, const Tensors& inputs,
                             const Tensors& outputs) {
    const size_t place = open.repeated_.size();
    const Collective* const kept = place < open.kept_.size() ? &open.kept_[place] : nullptr;
    TORCH_CHECK(kept != nullptr && kept->what == what && kept->outputs.size() == outputs.size(),
                "collective ", place, " is ", what, ", where the run before had ",
                kept != nullptr ? kept->what : "none");
    for (size_t i = 0; i < outputs.size(); ++i) {
      TORCH_CHECK(kept->outputs[i].sizes() == outputs[i].sizes(), "collective ", place, ", ", what,
                  ", has other shapes than in the run before");
    }
    open.repeated_.push_back({std::move(what), copy(inputs), {}});
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(kept->outputs[i]);
  }

  std::string group_;
  std::atomic<Collectives*> collectives_ = nullptr;
  std::unordered_map<c10::DeviceType, BackendPtr> real_;
};

namespace {

// Null for a group that never had one.
c10::intrusive_ptr<StandIn> find_stand_in(const Group& group) {
  try {
    return c10::dynamic_intrusive_pointer_cast<StandIn>(group->getBackend(kOurs));
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

Collectives::Collectives(const std::vector<std::string>& groups) {
  for (const std::string& name : groups) {
    groups_.emplace_back(name, c10d::resolve_process_group(name));
  }
}

Collectives::~Collectives() { close(); }

void Collectives::open(Answer answer) {
  answer_ = answer;
  repeated_.clear();
  if (answer == Answer::kLogged) kept_.clear();
  if (open_ != nullptr) return;
  if (is_any_open.exchange(true)) {
    throw UnavailableError("the collectives of this process are looked at already");
  }
  open_ = std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::TEST_INFO_2,
                                                std::make_shared<Mark>());
  try {
    for (const auto& [name, group] : groups_) replace(name, group);
  } catch (const c10::Error& error) {
    close();
    throw UnsupportedError(error.what_without_backtrace());
  } catch (...) {
    close();
    throw;
  }
}

void Collectives::replace(const std::string& name, const Group& group) {
  c10::intrusive_ptr<StandIn> ours = find_stand_in(group);
  if (!ours) ours = c10::make_intrusive<StandIn>(group->getRank(), group->getSize(), name);
  for (const c10::Device& device : group->getDeviceTypes()) {
    const BackendPtr real = group->getBackend(device.type());
    const auto type = c10d::ProcessGroup::strToBackendType(real->getBackendName());
    if (group->getBackend(type) == real) {     // by which it can be put back
      ours->setGroupUid(real->getGroupUid());  // the group's name is read of it
      ours->setGroupDesc(real->getGroupDesc());
      ours->open(this, device.type(), real);
      group->setBackend(device.type(), kOurs, ours);
    }
    if (group->getBackend(device.type()) != ours) {
      throw UnsupportedError("the backend of process group " + name + " (" +
                             real->getBackendName() + ") cannot be replaced meanwhile");
    }
  }
}

std::pair<int64_t, int64_t> Collectives::take_time() {
  return {time_ns_.exchange(0), timed_.exchange(0)};
}

void Collectives::close() noexcept {
  if (open_ == nullptr) return;
  for (const auto& [name, group] : groups_) {
    if (const auto ours = find_stand_in(group)) ours->close(group);
  }
  open_.reset();
  is_any_open = false;
}

}  // namespace ftax
