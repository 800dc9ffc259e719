#include "client/src/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace gyrostat::client {
namespace {

// Plain statics without destructors: they must outlive every handler.
constinit std::atomic<bool> g_guarded{false};
constinit std::atomic<bool> g_forked{false};
constinit std::atomic<bool> g_exiting{false};
constinit std::atomic<int> g_senders{0};

void OnForkInChild() { g_forked.store(true, std::memory_order_relaxed); }

// A sender looks at the flag at least once a millisecond unless it has no core; then exit goes on without it.
void OnExit() {
  if (g_forked.load(std::memory_order_relaxed)) return;  // The senders are the parent's.
  g_exiting.store(true, std::memory_order_release);
  for (int i = 0; i < 20 && g_senders.load(std::memory_order_acquire) > 0; ++i) {
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
}

}  // namespace

void GuardProcess() {
  if (g_guarded.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, OnForkInChild);
  atexit(OnExit);
}

bool InForkedChild() { return g_forked.load(std::memory_order_relaxed); }
bool Exiting() { return g_exiting.load(std::memory_order_acquire); }
void SenderStarted() { g_senders.fetch_add(1); }
void SenderStopped() { g_senders.fetch_sub(1, std::memory_order_release); }

void ParkSender() {
  SenderStopped();
  for (;;) pause();  // All signals are blocked in this thread: it sleeps until the process is gone.
}

}  // namespace gyrostat::client
