// Loaded before libgyrostat (LD_PRELOAD, pacing.py): gyro_step_end returns once the daemon has judged all reports but
// the newest, which may wait for its round. So an order's delay is a number of steps, on however busy a machine. Of
// several ranks only the leader has a stream; the others wait for it in their next collective.
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "gyrostat/gyrostat.h"

namespace {

constexpr int kLooksMax = 600'000;  // Of a millisecond: only what hangs meets them.

bool IsLeader() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || std::strcmp(rank, "0") == 0;
}

bool IsAnswered(const gyro_client* client) {
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  gyro_stats(client, &stats);
  return stats.reports_acked + stats.dropped_unacked + 1 >= stats.reports_total;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) gyro_status gyro_step_end(gyro_client* client) {
  static const auto end = reinterpret_cast<gyro_status (*)(gyro_client*)>(dlsym(RTLD_NEXT, "gyro_step_end"));
  const gyro_status status = end(client);
  if (!IsLeader()) return status;
  // Polled: the client has nothing that could notify. The condition variable only passes the time.
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  for (int i = 0; i < kLooksMax && !IsAnswered(client); ++i) never.wait_for(lock, std::chrono::milliseconds(1));
  return status;
}
