#include "notify/notifier.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "base/archive.h"
#include "base/log.h"
#include "base/mutex.h"
#include "notify/courier.h"
#include "notify/format.h"
#include "notify/hook_queue.h"
#include "notify/seen.h"

namespace gyrostat::notify {
namespace {

constexpr char kBegunName[] = "begun";  // Kept once the first life has looked at all runs.
constexpr base::Milliseconds kIdle{60'000};
constexpr base::Milliseconds kQuiet{60'000};  // Between two lines about drops.

HookQueue::Timing TimingOf(const NotifyOptions& options) {
  return {options.gather, options.backoff_min, options.backoff_max};
}

std::string RunName(const std::string& run) { return "run/" + run; }
std::string HookName(const std::string& hook) { return "hook/" + hook; }

// A webhook at work. `number` tells answers of an earlier courier apart.
struct Hook {
  HookQueue queue;
  uint64_t number = 0;
  std::unique_ptr<Courier> courier = nullptr;
  bool dirty = false;    // The queue on disk is another one.
  bool failing = false;  // The last request failed.
};

struct Answer {
  uint64_t number = 0;
  post::PostResult result;
};

}  // namespace

struct Notifier::Impl {
  Impl(NotifyOptions o, Sources s, Probe* p, const base::Clock* k, base::Milliseconds g)
      : sources(std::move(s)), probe(p), clock(k), grace(g), options(std::move(o)) {}

  // What other threads have handed in since the last look.
  struct Inbox {
    std::vector<Change> changes;
    std::set<std::string> behind;  // Runs whose changes did not fit.
    std::vector<Answer> answers;
    std::optional<NotifyOptions> options;
    bool Empty() const { return changes.empty() && behind.empty() && answers.empty() && !options; }
  };

  void Loop() {
    Configure(options);
    Recover();
    while (true) {
      Inbox now;
      base::MonotonicTime until = NextDue();
      {
        base::MutexLock lock(mutex);
        while (inbox.Empty() && !woken && base::SystemClock().Now() < until) changed.WaitUntil(mutex, until);
        woken = false;
        now = std::exchange(inbox, {});
      }
      for (const Answer& each : now.answers) TakeAnswer(each);
      if (now.options) Configure(*now.options);
      for (const Change& each : now.changes) Take(each, false);
      for (const auto& view : now.behind.empty() ? Views() : sources.runs())
        if (now.behind.count(view->run) > 0) RecoverRun(*view, false);
      Keep();
      SendDue();
      if (stopping && IsDrained()) return EndCouriers();
    }
  }

  using Views = std::vector<std::shared_ptr<const engine::RunState>>;

  // ---- What is new.

  void Take(const Change& change, bool silently) {
    Seen* run = FindSeen(change.run);
    if (run == nullptr) return;
    std::vector<Notice> notices;
    run->Take(change, &notices);
    if (notices.empty()) return;  // The same states say nothing the next time either: no need to note them.
    seen_dirty.insert(change.run);
    if (silently) return;
    const base::MonotonicTime at = base::SystemClock().Now();
    for (const Notice& notice : notices)
      for (auto& [name, hook] : hooks) hook.dirty |= hook.queue.Push(notice, at);
  }

  Seen* FindSeen(const std::string& run) {
    const auto found = seen.find(run);
    if (found != seen.end()) return &found->second;
    const absl::StatusOr<std::string> bytes = sources.load(RunName(run));
    Seen loaded;
    if (!bytes.ok()) {
      Complain("what was told of a run cannot be read: it may be told again", run, bytes.status());
    } else if (!bytes->empty()) {
      base::ByteReader in(*bytes);
      if (!base::LoadFrom(&in, &loaded)) {
        Complain("what was told of a run cannot be read: it may be told again", run,
                 absl::DataLossError("foreign bytes"));
        loaded = Seen();
      }
    }
    return &seen.emplace(run, std::move(loaded)).first->second;
  }

  // ---- What was missed: killed between the journal's word and ours.

  void Recover() {
    const absl::StatusOr<std::string> begun = sources.load(kBegunName);
    // What happened before there were notifications is no news.
    const bool silently = begun.ok() && begun->empty();
    for (const auto& view : sources.runs()) {
      if (stopping) return;  // The next life goes on.
      RecoverRun(*view, silently);
      Keep();
    }
    if (silently) Save(kBegunName, "1");
  }

  void RecoverRun(const engine::RunState& view, bool silently) {
    const Seen* run = FindSeen(view.run);
    const bool ended = view.life == engine::RunLife::kEnded;
    if (run == nullptr || (ended && run->EndedWith(view.attempt))) return;
    const auto findings = sources.history->Findings(view.run);
    const auto episodes = sources.history->Episodes(view.run);
    const auto interventions = sources.history->Interventions(view.run);
    for (const absl::Status& each : {findings.status(), episodes.status(), interventions.status()})
      if (!each.ok()) return Complain("history cannot be read for notifications", view.run, each);
    Change change;
    change.run = view.run;
    change.attempt = view.attempt;
    change.unix_ms = view.last_report_unix_ms;
    for (const auto& row : *findings) change.findings.push_back(row.finding);
    for (const auto& row : *episodes) change.episodes.push_back(row.diagnosis);
    for (const auto& row : *interventions) change.interventions.push_back(row.intervention);
    if (ended) {
      change.ended_attempt = view.attempt;
      change.ended_reason = "as the journal says";
    }
    if (const std::optional<uint64_t> run_number = NumberOf(change); run_number) {
      change.run_number = *run_number;
      Take(change, silently);
    }
  }

  // Ids are made from it (engine/finding_book.h, engine/episodes.h).
  std::optional<uint64_t> NumberOf(const Change& change) {
    if (!change.findings.empty()) return change.findings.back().id / engine::kFindingsPerRun;
    if (!change.episodes.empty()) return change.episodes.back().episode / engine::kEpisodesPerRun;
    if (change.interventions.empty() && change.ended_reason.empty()) return std::nullopt;
    engine::ReportQuery query;
    query.run = change.run;
    const auto page = sources.history->Reports(query, {});
    if (page.ok()) return page->run_number;
    Complain("history cannot be read for notifications", change.run, page.status());
    return std::nullopt;
  }

  // ---- Webhooks.

  void Configure(const NotifyOptions& wanted) {
    options = wanted;
    std::map<std::string, Hook> kept = std::exchange(hooks, {});
    for (const Webhook& each : options.webhooks) {
      auto old = kept.find(each.name);
      const bool is_new = old == kept.end();
      Hook hook = is_new ? Hook{HookQueue(each, TimingOf(options), std::random_device()())} : std::move(old->second);
      if (!is_new) kept.erase(old);
      if (is_new) LoadQueue(&hook);
      if (is_new || hook.queue.hook() != each) {
        hook.courier.reset();
        hook.number = ++number;
        hook.courier = std::make_unique<Courier>(each, sources.user_agent, clock, [this, n = hook.number](auto result) {
          base::MutexLock lock(mutex);
          inbox.answers.push_back({n, std::move(result)});
          changed.NotifyAll();
        });
        hook.queue.Configure(each, TimingOf(options));
        hook.dirty = !is_new;
      }
      hook.queue.SetTiming(TimingOf(options));
      hooks.emplace(each.name, std::move(hook));
    }
    for (auto& [name, hook] : kept) {
      hook.courier.reset();
      Save(HookName(name), "");  // Who comes back under that name begins anew.
    }
  }

  void LoadQueue(Hook* hook) {
    const std::string& name = hook->queue.hook().name;
    const absl::StatusOr<std::string> bytes = sources.load(HookName(name));
    if (!bytes.ok()) return Complain("the queue of a webhook cannot be read", name, bytes.status());
    if (!bytes->empty() && !hook->queue.Load(*bytes, base::SystemClock().Now()))
      Complain("the queue of a webhook cannot be read", name, absl::DataLossError("foreign bytes"));
  }

  void TakeAnswer(const Answer& answer) {
    for (auto& [name, hook] : hooks) {
      if (hook.number != answer.number) continue;
      hook.dirty = true;
      const bool was_failing = std::exchange(hook.failing, !answer.result.taken());
      switch (hook.queue.Answered(answer.result, base::SystemClock().Now())) {
        case HookQueue::Verdict::kTaken: probe->posts_total.Add(); break;
        case HookQueue::Verdict::kGivenUp:
          probe->rejected_total.Add();
          base::LogWarn("a webhook refuses a message, it is given up",
                        {{"webhook", name}, {"reason", answer.result.error}});
          break;
        case HookQueue::Verdict::kAgain:
          if (!was_failing)
            base::LogWarn("a webhook takes nothing, its messages wait",
                          {{"webhook", name}, {"reason", answer.result.error}});
      }
      if (hook.failing) probe->failures_total.Add();
      if (was_failing && !hook.failing) base::LogInfo("a webhook takes messages again", {{"webhook", name}});
    }
  }

  void SendDue() {
    const base::MonotonicTime at = base::SystemClock().Now();
    int64_t waiting = 0, failing = 0;
    for (auto& [name, hook] : hooks) {
      const std::vector<Notice> notices = hook.queue.Next(at, stopping);
      if (!notices.empty())
        hook.courier->Give(Body(hook.queue.hook().format, notices,
                                {name, sources.user_agent, options.page_url, hook.queue.dropped()}));
      waiting += static_cast<int64_t>(hook.queue.size());
      failing += hook.failing ? 1 : 0;
    }
    probe->queue_notices.Set(waiting);
    probe->webhooks_failing.Set(failing);
  }

  base::MonotonicTime NextDue() const {
    base::MonotonicTime next = base::SystemClock().Now() + kIdle;
    for (const auto& [name, hook] : hooks)
      if (const auto due = hook.queue.DueAt(stopping)) next = std::min(next, *due);
    return stopping ? std::min(next, stop_at.load()) : next;
  }

  // ---- The end.

  bool IsDrained() {
    const base::MonotonicTime at = base::SystemClock().Now();
    if (at >= stop_at.load()) return true;
    for (const auto& [name, hook] : hooks) {
      const auto due = hook.queue.DueAt(true);
      if (hook.queue.under_way() || (due && *due <= at)) return false;
    }
    return true;
  }

  void EndCouriers() {
    for (auto& [name, hook] : hooks) hook.courier->Stop();  // All at once, then one after the other.
    for (auto& [name, hook] : hooks) hook.courier.reset();
    std::vector<Answer> late;
    {
      base::MutexLock lock(mutex);
      late = std::move(inbox.answers);
    }
    for (const Answer& each : late) TakeAnswer(each);
    Keep();
  }

  // ---- What survives the process. Queues first: what is noted as seen must wait somewhere.

  void Keep() {
    for (auto& [name, hook] : hooks) {
      if (const uint64_t dropped = hook.queue.TakeDropped(); dropped > 0) TellDropped(name, dropped);
      if (std::exchange(hook.dirty, false)) Save(HookName(name), hook.queue.Save());
    }
    for (const std::string& run : std::exchange(seen_dirty, {})) {
      base::ByteWriter out;
      base::SaveTo(&out, seen[run]);
      Save(RunName(run), out.bytes());
    }
  }

  void Save(const std::string& name, const std::string& bytes) {
    if (const absl::Status saved = sources.save(name, bytes); !saved.ok())
      Complain("notifications cannot be noted, a restart may tell them again", name, saved);
  }

  void TellDropped(const std::string& hook, uint64_t dropped) {
    probe->dropped_total.Add(dropped);
    if (base::SystemClock().Now() < drops_quiet_until) return;
    drops_quiet_until = base::SystemClock().Now() + kQuiet;
    base::LogWarn("the queue of a webhook is full: the oldest notices are dropped",
                  {{"webhook", hook}, {"dropped_since_start", probe->dropped_total.value()}});
  }

  void Complain(const char* what, const std::string& whose, const absl::Status& status) {
    if (base::SystemClock().Now() < complaints_quiet_until) return;
    complaints_quiet_until = base::SystemClock().Now() + kQuiet;
    base::LogWarn(what, {{"of", whose}, {"reason", std::string(status.message())}});
  }

  const Sources sources;
  Probe* const probe;
  const base::Clock* const clock;
  const base::Milliseconds grace;
  std::atomic<bool> stopping{false};
  std::atomic<base::MonotonicTime> stop_at{base::MonotonicTime::max()};
  base::Mutex mutex;
  base::CondVar changed;
  Inbox inbox GYROSTAT_GUARDED_BY(mutex);
  bool woken GYROSTAT_GUARDED_BY(mutex) = false;
  // Of the thread.
  NotifyOptions options;
  std::map<std::string, Seen> seen;
  std::set<std::string> seen_dirty;
  std::map<std::string, Hook> hooks;
  uint64_t number = 0;
  base::MonotonicTime drops_quiet_until{}, complaints_quiet_until{};
  std::thread thread;
};

Notifier::Notifier(NotifyOptions options, Sources sources, Probe* probe, const base::Clock* clock,
                   base::Milliseconds grace)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(sources), probe, clock, grace)) {}

Notifier::~Notifier() { Stop(); }

void Notifier::Start() {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Loop(); });
}

void Notifier::Tell(Change change) {
  base::MutexLock lock(impl_->mutex);
  if (impl_->inbox.changes.size() < kChangesMax) {
    impl_->inbox.changes.push_back(std::move(change));
  } else {
    impl_->inbox.behind.insert(change.run);
  }
  impl_->changed.NotifyAll();
}

void Notifier::SetOptions(NotifyOptions options) {
  base::MutexLock lock(impl_->mutex);
  impl_->inbox.options = std::move(options);
  impl_->changed.NotifyAll();
}

void Notifier::BeginStop() {
  base::MutexLock lock(impl_->mutex);
  if (impl_->stopping) return;
  impl_->stop_at = base::SystemClock().Now() + impl_->grace;
  impl_->stopping = true;
  impl_->woken = true;
  impl_->changed.NotifyAll();
}

void Notifier::Stop() {
  BeginStop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace gyrostat::notify
