// A double of NCCL and of the CUDA runtime, since there may be no GPU: "device" memory is the host's, a stream is a
// thread that does what was queued in order, ranks are threads of one process whose all-reduces really meet. What each
// thread called is recorded. There is nothing in it that waits for a device, as there is nothing in the table.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/collectives/device_table.h"

namespace gyrostat::testing {

// Thread-safe.
class FakeStream {
 public:
  FakeStream();
  ~FakeStream();  // Drops what is still queued.
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  // A kernel of the training, say.
  void Queue(std::function<void()> work);
  // Holds what is queued from here on, until it is opened.
  void Close();
  void Open();
  // Waits until all that is queued has run.
  void Drain();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool open_ = true, ending_ = false, busy_ = false;
  std::thread thread_;
};

class FakeNccl {
 public:
  static const collectives::DeviceTable& Table();

  // What the calling thread has called since it asked last, e.g. "copy>", "group(", "max 8", "sum 3", ")group",
  // "copy<", "record", "query", "error?", "abort".
  static std::vector<std::string> Calls();
  // The calling thread's next call of this name fails with `code`; the names are those of the C functions.
  static void FailNext(const std::string& function, int code);
  // The rank of `id` is gone: NCCL of all the others notices, their kernels go on waiting.
  static void Kill(const gyro_nccl_id& id, int rank);
  // Whether the calling thread captures a stream into a graph: queries then spoil the capture, unless it is relaxed.
  static void Capture(bool on);
  static bool CaptureIsSpoilt();
  // Allocations, events and communicators that were not given back.
  static int Outstanding();
};

}  // namespace gyrostat::testing
