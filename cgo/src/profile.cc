// What a training step costs: the time of its stages, its kernels on the device, and the device's memory.
#include "profile.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace af {

std::atomic<bool> profiling{false};

namespace {

using Clock = std::chrono::steady_clock;

std::mutex profile_mutex;
af_profile profile;         // guarded by profile_mutex
thread_local int open = 0;  // timers of this thread that run

// Waits for the device. An error of its work is left to the next operation, which meets it again.
void wait_for(const at::Device& device) noexcept {
  if (device.is_cpu()) return;
  try {
    c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
  } catch (...) {
  }
}

struct Total {
  int64_t calls = 0;
  double seconds = 0;
};

bool is_copy(const std::string& name) { return name.starts_with("Memcpy") || name.starts_with("Memset"); }

}  // namespace

void StageTimer::begin() {
  if (open++ > 0) return;
  wait_for(device_);
  start_ = Clock::now();
}

void StageTimer::end() noexcept {
  if (--open > 0) return;
  wait_for(device_);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const std::lock_guard<std::mutex> lock(profile_mutex);
  profile.seconds[static_cast<int>(stage_)] += seconds;
  profile.calls[static_cast<int>(stage_)]++;
}

}  // namespace af

extern "C" {

void af_profile_start(void) {
  {
    const std::lock_guard<std::mutex> lock(af::profile_mutex);
    af::profile = {};
  }
  af::profiling = true;
}

void af_profile_stop(af_profile* out) {
  af::profiling = false;
  const std::lock_guard<std::mutex> lock(af::profile_mutex);
  *out = af::profile;
}

af_error* af_trace_start(int device) {
  return af::guard([&] {
    namespace profiler = torch::profiler::impl;
    af::check_device(device);
    if (profiler::profilerEnabled()) throw af::InputError("a trace is running already; stop it first");
    std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
    if (device >= 0) activities.insert(profiler::ActivityType::CUDA);
    const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
  });
}

af_error* af_trace_stop(af_trace* out, af_traced* busiest, int64_t n) {
  return af::guard([&] {
    *out = {};
    std::memset(busiest, 0, sizeof(af_traced) * static_cast<size_t>(n));
    if (!torch::profiler::impl::profilerEnabled()) throw af::InputError("no trace was started on this thread");
    const auto result = torch::autograd::profiler::disableProfiler();
    if (const char* file = std::getenv("AGENTFLY_TRACE"); file != nullptr && *file != 0) result->save(file);
    std::map<std::string, af::Total> kernels, operators;
    std::multimap<int64_t, std::pair<int64_t, std::string>> on_device;  // end and name by start, nanoseconds
    for (const auto& event : result->events()) {
      const std::string name = event.name();
      const double seconds = static_cast<double>(event.durationNs()) * 1e-9;
      if (event.deviceType() == c10::DeviceType::CPU) {
        if (!name.starts_with("aten::")) continue;  // calls of the CUDA runtime are here too
        out->operators++;
        operators[name].calls++, operators[name].seconds += seconds;
        continue;
      }
      on_device.emplace(event.startNs(), std::pair(static_cast<int64_t>(event.endNs()), name));
      if (af::is_copy(name)) {
        out->copies++, out->copy_seconds += seconds;
      } else {
        out->kernels++, out->kernel_seconds += seconds;
        kernels[name].calls++, kernels[name].seconds += seconds;
      }
    }
    int64_t end = on_device.empty() ? 0 : on_device.begin()->first;
    for (const auto& [start, event] : on_device) {
      const double idle = static_cast<double>(start - end) * 1e-9;
      if (idle > 1e-5)
        kernels["idle before " + event.second].calls++, kernels["idle before " + event.second].seconds += idle;
      end = std::max(end, event.first);
    }
    const auto& totals = out->kernels > 0 ? kernels : operators;
    std::vector<std::pair<std::string, af::Total>> order(totals.begin(), totals.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    for (int64_t i = 0; i < n && i < static_cast<int64_t>(order.size()); i++) {
      std::strncpy(busiest[i].name, order[i].first.c_str(), sizeof(busiest[i].name) - 1);
      busiest[i].calls = order[i].second.calls;
      busiest[i].seconds = order[i].second.seconds;
    }
  });
}

af_error* af_device_memory(int device, int reset, af_memory* out) {
  return af::guard([&] {
    *out = {};
    if (device < 0) throw af::InputError("only the memory of a CUDA device is counted");
    af::check_device(device);
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
    throw af::InputError("the memory of a device is counted with torch 2.9 or newer, this is " TORCH_VERSION);
#else
    const auto index = static_cast<c10::DeviceIndex>(device);
    c10::DeviceAllocator* allocator = c10::getDeviceAllocator(at::kCUDA);
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const c10::CachingDeviceAllocator::DeviceStats stats = allocator->getDeviceStats(index);
    out->allocated = stats.allocated_bytes[all].current;
    out->peak = stats.allocated_bytes[all].peak;
    out->reserved = stats.reserved_bytes[all].current;
    out->peak_reserved = stats.reserved_bytes[all].peak;
    if (reset != 0) allocator->resetPeakStats(index);
#endif
  });
}

}  // extern "C"
