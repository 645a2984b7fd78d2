// What the CUDA driver loads into a program that `ftax run` watches (CUDA_INJECTION64_PATH). It
// records through CUPTI when the device works and which calls gave it that work, and writes both
// into a file. It neither subscribes to CUPTI nor calls CUDA, so that torch.profiler works as ever.
//
// Recording each kernel slows the host, so it goes by turns: for a while all is recorded, then for
// a longer while only calls and whole graphs, which costs less. Calls tell how fast the program
// goes in both, so what recording adds is measured in the run itself.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/quiet_thread.h"
#include "cupti/library.h"
#include "watch/activity_file.h"

namespace ftax::watch {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr auto kFirstWait = 200ms;
// Each switch costs some milliseconds, so a program that works for long has longer turns.
constexpr auto kShortest = 300ms;
constexpr auto kLongest = 800ms;
constexpr int kLaunchesTimes = 4;  // as long as everything is recorded
constexpr auto kSettle = 50ms;     // until what was launched while all was recorded has ended

constexpr CUpti_ActivityKind kDeviceKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

// Launches, copies, and calls that wait for the device.
constexpr CUpti_CallbackId kRuntimeCalls[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_ptds_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020};
constexpr CUpti_CallbackId kDriverCalls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,       CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize,  CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,       CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2};

uint64_t CUPTIAPI read_clock() { return static_cast<uint64_t>(now_ns()); }

// One a process, for as long as it lives: CUPTI calls back until the end.
class Watch {
 public:
  static Watch& instance() {
    static auto* const watch = new Watch;
    return *watch;
  }

  void begin(const std::string& folder) {
    const std::string path =
        folder + "/" + std::to_string(getpid()) + "-" + std::to_string(read_clock());
    try {
      library_ = &cupti::Library::open();
      find_single_calls();
      if (!file_.open(path)) return;
      const cupti::Functions& functions = library_->functions();
      library_->check(functions.cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
                      "cuptiActivityRegisterCallbacks");
      library_->check(functions.cuptiActivityRegisterTimestampCallback(read_clock),
                      "cuptiActivityRegisterTimestampCallback");
    } catch (const Error& error) {
      write_problem(path, error.what());
      return;
    }
    begin_calls();
    pthread_atfork(nullptr, nullptr, [] { instance().forget(); });
    register_end();
    thread_ = start_quiet_thread([this] { run(); });
    is_on_ = true;
  }

 private:
  using SingleCall = CUptiResult(CUPTIAPI*)(CUpti_CallbackId, uint8_t);

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
    if (!instance().has_buffers_.exchange(true)) register_end();
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
    *bytes = *buffer == nullptr ? 0 : kBufferBytes;
    *most_records = 0;
  }

  static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                                   size_t valid_bytes) {
    instance().decode(context, stream, buffer, valid_bytes);
    std::free(buffer);
  }

  static void write_problem(const std::string& path, const std::string& words) {
    ActivityFile file;
    if (file.open(path)) file.number("problem: " + words);
  }

  void find_single_calls() {
    runtime_call_ = reinterpret_cast<SingleCall>(library_->find("cuptiActivityEnableRuntimeApi"));
    driver_call_ = reinterpret_cast<SingleCall>(library_->find("cuptiActivityEnableDriverApi"));
    using SetIds = CUptiResult(CUPTIAPI*)(CUpti_ActivityThreadIdType);
    if (auto* set = reinterpret_cast<SetIds>(library_->find("cuptiSetThreadIdType"))) {
      set(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    }
  }

  // Told once each, as a name; what CUPTI refuses is missing in the records.
  void note_failure(const std::string& what, CUptiResult result) {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    library_->functions().cuptiGetResultString(result, &text);
    file_.number("note: " + what + " is not recorded, CUPTI says " + (text ? text : "?"));
  }

  // On before the first call of CUDA, and for good: what is switched on or off while the program is
  // inside of a call may be lost, and where graph launches are switched after a graph was made, its
  // replay ends in a segmentation fault (CUPTI of CUDA 13.0).
  void begin_calls() {
    for (const CUpti_CallbackId id : kRuntimeCalls) note_call(runtime_call_, id);
    for (const CUpti_CallbackId id : kDriverCalls) note_call(driver_call_, id);
    note_failure("a graph launch",
                 library_->functions().cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
  }

  void note_call(SingleCall call, CUpti_CallbackId id) {
    if (call != nullptr) note_failure("a call", call(id, 1));
  }

  void switch_work(bool is_on) {
    const cupti::Functions& functions = library_->functions();
    for (const CUpti_ActivityKind kind : kDeviceKinds) {
      note_failure(
          "work of kind " + std::to_string(kind),
          is_on ? functions.cuptiActivityEnable(kind) : functions.cuptiActivityDisable(kind));
    }
  }

  void run() {
    bool goes_on = wait(kFirstWait);
    if (goes_on) register_end();
    for (auto all_for = kShortest; goes_on;) {
      switch_work(true);
      uint64_t start = read_clock();
      goes_on = wait(all_for);
      const uint64_t end = read_clock();
      switch_work(false);
      // A buffer with work that still runs would stay with CUPTI.
      if (goes_on) goes_on = wait(kSettle);
      end_phase(Phase::kAll, start, end);
      if (!goes_on) return;
      start = read_clock();
      goes_on = wait(all_for * kLaunchesTimes);
      end_phase(runtime_call_ == nullptr ? Phase::kNothing : Phase::kLaunches, start, read_clock());
      if (has_worked_.exchange(false)) all_for = std::min(kLongest, all_for * 5 / 4);
    }
  }

  // Whether to go on after it.
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return !ends_.wait_for(lock, time, [this] { return stops_; });
  }

  // What is registered last runs first at exit, and CUPTI must not be called once the driver has
  // ended. That registers its end while it is initialised: it is done with that when there is
  // something to record.
  static void register_end() {
    std::atexit([] { instance().end(); });
  }

  void end() {
    if (!is_on_.exchange(false)) return;
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    ends_.notify_all();
    thread_.join();
  }

  void forget() {
    if (!is_on_.exchange(false)) return;
    file_.forget();
    thread_.detach();  // there is no such thread in a child
  }

  // Its records stand before it.
  void end_phase(Phase phase, uint64_t start, uint64_t end) {
    note_failure("a flush", library_->functions().cuptiActivityFlushAll(1));
    file_.append({{.start_ns = start,
                   .end_ns = end,
                   .symbol = static_cast<uint32_t>(phase),
                   .kind = Kind::kPhase}});
  }

  void decode(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid_bytes) {
    std::vector<Record> records;
    CUpti_Activity* activity = nullptr;
    const cupti::Functions& functions = library_->functions();
    while (valid_bytes > 0 &&
           functions.cuptiActivityGetNextRecord(buffer, valid_bytes, &activity) == CUPTI_SUCCESS) {
      Record record;
      if (read(activity, record) && record.start_ns != 0) records.push_back(record);
    }
    size_t lost = 0;
    functions.cuptiActivityGetNumDroppedRecords(context, stream, &lost);
    if (lost > 0) {
      records.push_back(
          {.start_ns = read_clock(), .symbol = static_cast<uint32_t>(lost), .kind = Kind::kLost});
    }
    if (!records.empty()) has_worked_ = true;
    file_.append(records);
  }

  // Each through the oldest struct that has what is read: CUPTI only appends to a record.
  bool read(const CUpti_Activity* activity, Record& record) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel7*>(activity);
        fill(record, kernel, Kind::kKernel);
        record.symbol = file_.number(kernel.name == nullptr ? "" : kernel.name);
        return true;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(activity);
        fill(record, copy, Kind::kCopy);
        record.symbol = file_.number("copy " + std::to_string(copy.copyKind));
        return true;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& set = *reinterpret_cast<const CUpti_ActivityMemset3*>(activity);
        fill(record, set, Kind::kFill);
        record.symbol = file_.number("fill");
        return true;
      }
      case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
        const auto& graph = *reinterpret_cast<const CUpti_ActivityGraphTrace*>(activity);
        fill(record, graph, Kind::kGraph);
        record.symbol = file_.number("graph " + std::to_string(graph.graphId));
        return true;
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER: {
        const auto& call = *reinterpret_cast<const CUpti_ActivityAPI*>(activity);
        record = {.start_ns = call.start,
                  .end_ns = call.end,
                  .correlation = call.correlationId,
                  .stream = call.threadId,
                  .symbol = number_call(call),
                  .kind = Kind::kCall};
        return true;
      }
      default:
        return false;
    }
  }

  template <typename Activity>
  static void fill(Record& record, const Activity& activity, Kind kind) {
    record = {.start_ns = activity.start,
              .end_ns = activity.end,
              .correlation = activity.correlationId,
              .stream = activity.streamId,
              .kind = kind};
  }

  uint32_t number_call(const CUpti_ActivityAPI& call) {
    const bool is_runtime = call.kind == CUPTI_ACTIVITY_KIND_RUNTIME;
    const char* name = nullptr;
    library_->functions().cuptiGetCallbackName(
        is_runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, call.cbid, &name);
    return file_.number(name == nullptr ? "call " + std::to_string(call.cbid) : name);
  }

  const cupti::Library* library_ = nullptr;
  SingleCall runtime_call_ = nullptr;
  SingleCall driver_call_ = nullptr;
  ActivityFile file_;
  std::atomic<bool> is_on_ = false;
  std::atomic<bool> has_buffers_ = false;
  std::atomic<bool> has_worked_ = false;  // records came since this was last asked
  std::mutex mutex_;
  std::condition_variable ends_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace
}  // namespace ftax::watch

// Called by the driver when it is initialised. What it returns is not looked at.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (const char* folder = std::getenv("FTAX_RUN_FOLDER")) {
    ftax::watch::Watch::instance().begin(folder);
  }
  return 1;
}
