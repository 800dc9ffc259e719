// The training thread's promise, held by force: between open and close it makes no allocation, takes no lock and makes
// no system call. This program replaces malloc and pthread_mutex_lock, which then count what the armed thread does; a
// seccomp filter on that thread alone ends the process at the first system call.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "client/src/agreement/join.h"
#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/qk_clip.h"
#include "support/fake_transport.h"
#include "support/paths.h"

namespace {

thread_local bool t_armed = false;
thread_local int t_allocations = 0, t_locks = 0;

}  // namespace

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

void* malloc(size_t size) {
  if (t_armed) ++t_allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (t_armed) ++t_allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  if (t_armed) ++t_allocations;
  return __libc_realloc(block, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (t_armed) ++t_allocations;
  return __libc_memalign(alignment, size);
}
void free(void* block) {
  if (t_armed && block != nullptr) ++t_allocations;  // Giving back takes the heap's lock too.
  __libc_free(block);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (t_armed) ++t_locks;
  using Lock = int (*)(pthread_mutex_t*);
  static const auto real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return real(mutex);
}

}  // extern "C"

namespace gyrostat::client {
namespace {

enum Exit { kDone = 0, kAllocated = 10, kLocked = 11, kWrongAnswer = 12, kNoFilter = 13, kSetUp = 14 };

// From here on any system call of this thread but exit_group ends the process with SIGSYS.
bool ForbidSystemCalls() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  sock_fprog program{sizeof(code) / sizeof(code[0]), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs `prepare` and then, armed and without system calls, `work`, in a child of this process that has never opened a
// client before. Returns the child's wait status.
int RunArmed(const std::function<bool()>& prepare, const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (!prepare()) _exit(kSetUp);
    if (!ForbidSystemCalls()) _exit(kNoFilter);
    t_armed = true;
    const bool right = work();
    t_armed = false;
    _exit(!right ? kWrongAnswer : t_allocations > 0 ? kAllocated : t_locks > 0 ? kLocked : kDone);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void ExpectDone(int status) {
  ASSERT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << "a system call on the training thread";
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), kDone) << "10 allocated, 11 locked, 12 wrong answer, 13 no seccomp, 14 no set-up";
}

gyro_options SomeOptions() {
  gyro_options options;
  gyro_options_init(&options);
  options.address = "fake:1";
  options.run = "hot";
  options.allow = "qk_clip,deepnorm_alpha,lr_scale,warmup_extension";
  options.transport = gyrostat::testing::kFakeTransport;
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.model.layers = 4;
  options.model.heads = 8;
  options.model.attention = "mha";
  options.model.qk_norm = "none";
  options.model.master_fp32 = 1;
  options.model.norm_placement = "post";
  options.model.schedule_peak = 1e-3;
  options.model.warmup_steps = 100;
  return options;
}

struct Job {
  testing::FakeDaemon daemon;
  gyro_client* client = nullptr;
  std::vector<float> maxima = std::vector<float>(32, 20.0f);
  gyro_order order{};

  bool Open() {
    const gyro_options options = SomeOptions();
    order.struct_size = sizeof(order);
    return gyro_open(&options, &client) == GYRO_OK;
  }
  bool Step(int64_t step) {
    const gyro_status begun = gyro_step_begin(client, step);
    if (begun != GYRO_OK && begun != GYRO_DROPPED) return false;
    gyro_record_scalar(client, "loss", 2.5);
    gyro_record_scalar(client, "my.own.scalar", 1.0);
    gyro_record_scalar(client, "not valid", 1.0);  // Refused, in words.
    gyro_record_array(client, "layer_grad_norm", maxima.data(), 4);
    gyro_record_layer_attn_logit_max(client, 1, maxima.data(), 8, GYRO_LOGIT_EXACT);
    gyro_record_attn_logit_max(client, maxima.data(), maxima.size(), GYRO_LOGIT_UNKNOWN);
    return gyro_step_end(client) == begun;
  }
  // Polls for some minutes at most, by a clock that needs no system call.
  bool PollUntilOrder() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (std::chrono::steady_clock::now() < deadline)
      if (gyro_poll(client, &order) == GYRO_OK) return true;
    return false;
  }
  model::Order Clip(bool local) const {
    model::Order clip;
    clip.id.bytes.fill(local ? 2 : 1);
    clip.run = "hot";
    clip.attempt = daemon.hellos()[0].attempt;
    clip.intent_id = "hot/1";
    clip.tau = 10;
    clip.where = local ? model::ClipWhere::kLocal : model::ClipWhere::kRemote;
    if (local) return clip;
    clip.basis = 1;
    clip.expires_boundary = 1'000'000;
    for (uint32_t i = 0; i < 32; ++i) clip.entries.push_back({i / 8, i % 8, 20, *remedy::ClipTarget(20, 10, 0)});
    return clip;
  }
  bool SawFirstReport() const {
    return daemon.Wait([](const auto& d) { return !d.hellos().empty() && !d.reports().empty(); });
  }
};

TEST(HotPath, RecordingAllocatesLocksAndCallsNothing) {
  Job* job = nullptr;
  ExpectDone(RunArmed(
      [&] {
        job = new Job;
        return job->Open();
      },
      [&] {
        for (int64_t i = 0; i < 5000; ++i)  // Faster than the sender looks: the full ring is part of the test.
          if (!job->Step(i)) return false;
        gyro_client_stats stats{};
        stats.struct_size = sizeof(stats);
        gyro_stats(job->client, &stats);
        return stats.boundary == 5000 && stats.invalid_total > 0 && gyro_reset(job->client) == GYRO_OK;
      }));
}

TEST(HotPath, ApplyingARemoteOrderAllocatesLocksAndCallsNothing) {
  Job* job = nullptr;
  ExpectDone(RunArmed(
      [&] {
        job = new Job;
        if (!job->Open() || !job->Step(1) || !job->SawFirstReport()) return false;
        job->daemon.Send(job->Clip(false));
        return true;
      },
      [&] {
        return job->PollUntilOrder() && job->order.q_count == 32 &&
               gyro_ack(job->client, job->order.id, GYRO_APPLIED, nullptr) == GYRO_OK;
      }));
}

TEST(HotPath, LocalClippingAllocatesLocksAndCallsNothing) {
  Job* job = nullptr;
  ExpectDone(RunArmed(
      [&] {
        job = new Job;
        if (!job->Open() || !job->Step(1) || !job->SawFirstReport()) return false;
        job->daemon.Send(job->Clip(true));
        // Polling takes the register in; its ack shows that it did.
        return job->daemon.Wait([&](const auto& d) {
          gyro_poll(job->client, &job->order);
          return d.acks().size() == 1;
        });
      },
      [&] {
        for (int64_t i = 2; i < 100; ++i) {  // More versions than the ledger's history holds.
          if (!job->Step(i)) return false;
          if (gyro_poll(job->client, &job->order) != GYRO_OK) continue;  // This report was dropped.
          if (gyro_ack(job->client, job->order.id, GYRO_APPLIED, nullptr) != GYRO_OK) return false;
        }
        return true;
      }));
}

// Alpha on its ramp, a ray and a scale, read at every step.
TEST(HotPath, RegistersInForceAllocateLockAndCallNothing) {
  Job* job = nullptr;
  const auto order = [&job](model::InterventionKind kind, std::vector<model::RegisterSet> sets, uint32_t ramp) {
    model::Order each = job->Clip(true);
    each.id.bytes.fill(static_cast<uint8_t>(kind));
    each.kind = kind;
    each.where = model::ClipWhere::kRemote;
    each.expires_boundary = 1'000'000;
    each.sets = std::move(sets);
    each.ramp = ramp;
    job->daemon.Send(each);
    return job->daemon.Wait([&job](const auto&) { return gyro_poll(job->client, &job->order) == GYRO_OK; }) &&
           gyro_ack(job->client, job->order.id, GYRO_APPLIED, nullptr) == GYRO_OK;
  };
  ExpectDone(RunArmed(
      [&] {
        job = new Job;
        return job->Open() && job->Step(1) && job->SawFirstReport() &&
               order(model::InterventionKind::kDeepnormAlpha, {{64, 2, 0}, {65, 2, 0}}, 200) &&
               order(model::InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 500, 0}}, 0) &&
               order(model::InterventionKind::kWarmupExtension,
                     {{16, 1e-4f, 0}, {17, 1e-6f, 0}, {18, 2, 0}, {19, 700, 0}, {20, 0, 0}, {21, 1, 0}}, 0);
      },
      [&] {
        double rate = 0;
        float alpha = 0;
        for (int64_t i = 2; i < 1000; ++i) {
          if (gyro_learning_rate(job->client, 5e-4, &rate) != GYRO_OK || !(rate > 0 && rate <= 5e-4)) return false;
          if (!job->Step(i)) return false;
          for (const uint32_t layer : {1u, 0u})
            if (gyro_register_value(job->client, GYRO_REGISTER_ALPHA + layer, &alpha) != GYRO_OK ||
                gyro_observe(job->client, GYRO_REGISTER_ALPHA + layer, alpha) != GYRO_OK)
              return false;
          gyro_hold(job->client, i % 2 == 0 ? "a person says stop" : nullptr);
          if (gyro_poll(job->client, &job->order) != GYRO_NONE) return false;
        }
        return alpha == 2 && rate == 5e-4;
      }));
}

// One of two ranks, whose other does not exist: a double that answers what this rank said, and in the join adds a
// rank 1 that says the same of a replica of its own. It counts.
struct LonelyCollective {
  int maxima = 0, sums = 0, asked = 0;

  static int Begin(void*, float*, size_t) { return 0; }
  static int MaxWait(void* context, float* lanes, size_t count) {
    if (static_cast<LonelyCollective*>(context)->maxima++ > 0) return 0;
    const size_t each = JoinLanes(2) - JoinLanes(1);  // The lanes of one rank: the last.
    std::copy(lanes + count - 2 * each, lanes + count - each, lanes + count - each);
    lanes[count - each] = 2;  // Its replica, from 1.
    return 0;
  }
  static int SumWait(void* context, float*, size_t) { return ++static_cast<LonelyCollective*>(context)->sums, 0; }
  // Of ten steps some are over before it says so.
  static int Done(void* context) { return ++static_cast<LonelyCollective*>(context)->asked % 9 == 0 ? 1 : 0; }
};

TEST(HotPath, ReducingAllocatesLocksAndCallsNothing) {
  Job* job = nullptr;
  LonelyCollective* lonely = nullptr;
  ExpectDone(RunArmed(
      [&] {
        job = new Job;
        lonely = new LonelyCollective;
        gyro_collective collective{};
        collective.struct_size = sizeof(collective);
        collective.context = lonely;
        collective.max_begin = collective.sum_begin = &LonelyCollective::Begin;
        collective.max_wait = &LonelyCollective::MaxWait;
        collective.sum_wait = &LonelyCollective::SumWait;
        collective.round_done = &LonelyCollective::Done;
        gyro_options options = SomeOptions();
        options.world_size = 2;
        options.collective = &collective;
        job->order.struct_size = sizeof(job->order);
        return gyro_open(&options, &job->client) == GYRO_OK;
      },
      [&] {
        for (int64_t i = 0; i < 2000; ++i)
          if (gyro_progress(job->client) != GYRO_OK || !job->Step(i) ||
              gyro_poll(job->client, &job->order) != GYRO_NONE)
            return false;
        gyro_client_stats stats{};
        stats.struct_size = sizeof(stats);
        gyro_stats(job->client, &stats);
        // One of each a boundary but the last, whose round is under way; the join is a MAX.
        return lonely->maxima == 2000 && lonely->sums == 1999 && stats.boundary == 2000 && lonely->asked > 5000;
      }));
}

// The test of the test: what it forbids is really seen.
TEST(HotPath, TheTrapsCatchWhatTheyAreFor) {
  const auto nothing = [] { return true; };
  int status = RunArmed(nothing, [] {
    ::operator delete(::operator new(64));
    return true;
  });
  EXPECT_EQ(WEXITSTATUS(status), kAllocated);
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  status = RunArmed(nothing, [] { return pthread_mutex_lock(&mutex) == 0; });
  EXPECT_EQ(WEXITSTATUS(status), kLocked);
  status = RunArmed(nothing, [] { return getppid() > 0; });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

}  // namespace
}  // namespace gyrostat::client
