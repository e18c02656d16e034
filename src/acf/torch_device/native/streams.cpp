// Streams, events, synchronisation, pinned memory and memory statistics of torch.device("acf"), as torch asks for them in C++.
//
// torch's registration from Python leaves these out (as of 2.13 streams and events do nothing there). The current
// stream of every thread is kept here; everything else is asked of one function in Python, `acf_connect`.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr std::size_t kMessageBytes = 1024;

// What Python is asked; acf.torch_device.streams has the same numbers.
enum Question : std::int64_t {
  kNewStream,
  kQueryStream,
  kSynchronizeStream,
  kSynchronizeDevice,
  kRecord,
  kWait,
  kQueryEvent,
  kSynchronizeEvent,
  kElapsed,
  kDestroyEvent,
  kAllocatedBytes,
  kPeakBytes,
  kResetPeak,
  kMemoryBytes,
};

// Returns 0 with an answer, or 1 with the text of an error.
using Answer = int (*)(std::int64_t question, std::int64_t one, std::int64_t other, double* answer, char* message);

Answer answer_of_python = nullptr;

double ask(Question question, std::int64_t one = 0, std::int64_t other = 0) {
  if (answer_of_python == nullptr) return 1.0;  // Python is shutting down: everything is complete
  double answer = 0.0;
  char message[kMessageBytes] = {0};
  const int failed = answer_of_python(question, one, other, &answer, message);
  TORCH_CHECK(failed == 0, message);
  return answer;
}

thread_local c10::StreamId current_stream = 0;

std::int64_t number_of(void* event) { return reinterpret_cast<std::intptr_t>(event); }

c10::Device device() { return c10::Device(kType, 0); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device wanted) const override {
    TORCH_CHECK(wanted.index() <= 0, "acf:", int(wanted.index()), " does not exist; there is one device, acf:0");
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}

  c10::Stream stream(c10::StreamId id) const { return c10::Stream(c10::Stream::UNSAFE, device(), id); }
  c10::Stream getStream(c10::Device) const override { return stream(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return getNewStream(device(), 0); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(c10::StreamId(ask(kNewStream))); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream previous = stream(current_stream);
    current_stream = next.id();
    return previous;
  }
  bool queryStream(const c10::Stream& stream) const override { return ask(kQueryStream, stream.id()) != 0; }
  void synchronizeStream(const c10::Stream& stream) const override { ask(kSynchronizeStream, stream.id()); }
  void synchronizeDevice(const c10::DeviceIndex) const override { ask(kSynchronizeDevice); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    const auto number = std::int64_t(ask(kRecord, number_of(*event), stream.id()));
    *event = reinterpret_cast<void*>(std::intptr_t(number));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) ask(kWait, number_of(event), stream.id());
  }
  bool queryEvent(void* event) const override { return event == nullptr || ask(kQueryEvent, number_of(event)) != 0; }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) ask(kSynchronizeEvent, number_of(event));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return ask(kElapsed, number_of(start), number_of(end));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    try {
      if (event != nullptr) ask(kDestroyEvent, number_of(event));
    } catch (...) {  // the signature allows no error, and a lost event frees nothing but its number
    }
  }
};

// Host memory whose addresses are remembered, so that torch can tell it is pinned. The modelled link reads all host
// memory at its full rate.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t nbytes) override {
    void* memory = c10::GetCPUAllocator()->raw_allocate(nbytes);
    if (memory != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex());
      sizes()[reinterpret_cast<std::uintptr_t>(memory)] = nbytes;
    }
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }

  static bool has(const void* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::lock_guard<std::mutex> lock(mutex());
    auto behind = sizes().upper_bound(address);
    if (behind == sizes().begin()) return false;
    --behind;
    return address < behind->first + behind->second;
  }

 private:
  static void release(void* memory) {
    if (memory == nullptr) return;
    {
      const std::lock_guard<std::mutex> lock(mutex());
      sizes().erase(reinterpret_cast<std::uintptr_t>(memory));
    }
    c10::GetCPUAllocator()->raw_deallocate(memory);
  }
  static std::mutex& mutex() {
    static auto* made = new std::mutex;  // never destroyed: tensors may be freed after statics
    return *made;
  }
  static std::map<std::uintptr_t, std::size_t>& sizes() {
    static auto* made = new std::map<std::uintptr_t, std::size_t>;
    return *made;
  }
};

// Memory statistics; tensors of the device get their memory in Python, never here.
struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t nbytes) override {
    if (nbytes == 0) return {nullptr, device()};
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "acf has no memory for a storage of ", nbytes, " bytes in C++; make a tensor, as torch.empty() does");
  }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& allocated = stats.allocated_bytes[0];  // over all pools
    allocated.current = std::int64_t(ask(kAllocatedBytes));
    allocated.peak = std::int64_t(ask(kPeakBytes));
    stats.reserved_bytes[0] = allocated;  // nothing is cached
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { ask(kResetPeak); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    const auto total = std::size_t(ask(kMemoryBytes)), used = std::size_t(ask(kAllocatedBytes));
    return {used < total ? total - used : 0, total};
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::has(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* allocator = new PinnedAllocator;
    return allocator;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { refuse_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { refuse_generator(); }

 private:
  [[noreturn]] static void refuse_generator() {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "acf has no generator of its own, as its random numbers come from the host; use torch.Generator()");
  }
};

}  // namespace

// Register with torch; `answer` is asked from then on. False where another package has registered hooks before.
extern "C" __attribute__((visibility("default"))) bool acf_connect(Answer answer) {
  if (at::isPrivateUse1HooksRegistered()) return false;
  answer_of_python = answer;
  static const Guard guard;
  static Hooks hooks;
  static const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  (void)registrar;
  static auto* memory = new DeviceMemory;
  c10::SetAllocator(kType, memory);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}

// Stop asking, before Python goes away.
extern "C" __attribute__((visibility("default"))) void acf_disconnect() { answer_of_python = nullptr; }
