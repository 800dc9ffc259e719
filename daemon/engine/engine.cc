#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/shard.h"

namespace gyrostat::engine {
namespace {

// Brings `run` to where the journal left it. False when anything of it cannot be read.
bool Replay(const StoredRun& stored, Run* run) {
  if (!run->Load(stored.snapshot) || run->name() != stored.run || run->number() != stored.number) return false;
  Event event;
  RunOutput discarded;  // What the events caused is in the journal already.
  for (const std::string& bytes : stored.events) {
    if (!Decode(bytes, &event)) return false;
    run->Apply(event, &discarded);
  }
  return true;
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options, Journal* journal, Outbox* outbox, const base::Clock* clock)
      : common(options, journal, outbox, clock) {
    const uint32_t count = std::clamp(options.shards, 1u, 64u);
    for (uint32_t i = 0; i < count; ++i) {
      const Shard::Duty duty = i == 0 ? Shard::Duty::kRunsAndLimit : Shard::Duty::kRuns;
      shards.push_back(std::make_unique<Shard>(&common, duty));
    }
  }

  Shard& ShardOf(const std::string& run) { return *shards[std::hash<std::string>()(run) % shards.size()]; }

  Common common;
  std::vector<std::unique_ptr<Shard>> shards;
  std::atomic<bool> stopped{false};
};

Engine::Engine(EngineOptions options, Journal* journal, Outbox* outbox, const base::Clock* clock)
    : impl_(std::make_unique<Impl>(options, journal, outbox, clock)) {}

Engine::~Engine() { Stop(); }

absl::Status Engine::Restore(History* history) {
  Common& common = impl_->common;
  absl::StatusOr<std::optional<ModeWord>> limit = history->ModeLimit();
  if (!limit.ok()) return limit.status();
  if (*limit) common.mode_limit.Restore(**limit);
  return history->ForEachRun([&](StoredRun stored) {
    common.run_number_next = std::max(common.run_number_next.load(), stored.number + 1);
    auto run = std::make_unique<Run>(stored.run, stored.number, common.run_options.Get());
    if (!Replay(stored, run.get())) {
      base::LogError("stored state of a run cannot be read: its next hello starts it anew, its history stays readable",
                     {{"run", stored.run}, {"run_number", stored.number}, {"events", stored.events.size()}});
      return absl::OkStatus();
    }
    common.mono_base_ms = std::max(common.mono_base_ms, run->last_mono_ms());
    common.board.Publish(std::make_shared<const RunState>(run->View()));
    Shard& shard = impl_->ShardOf(run->name());
    shard.Adopt(std::move(run), stored.events.size());
    return absl::OkStatus();
  });
}

void Engine::Start() {
  for (const auto& shard : impl_->shards) shard->Start();
}

void Engine::Stop() {
  if (impl_->stopped.exchange(true)) return;
  for (const auto& shard : impl_->shards) shard->Stop();
  impl_->common.in_flight.WaitForNone();
}

void Engine::Post(const std::string& run, EventBody body, Done done) {
  Common& common = impl_->common;
  const auto answer = [&done](const absl::Status& status) {
    if (done) done(status);
  };
  const bool is_hello = std::holds_alternative<HelloEvent>(body);
  Board::Claim claim = Board::Claim::kKnown;
  if (is_hello) {
    claim = common.board.TakeName(run, common.options.runs_max);
  } else if (!common.board.HasName(run)) {
    return answer(absl::NotFoundError("run " + run + " is not known"));
  }
  if (claim == Board::Claim::kFull) {
    return answer(absl::ResourceExhaustedError("run " + run + " is not taken: this daemon holds " +
                                               std::to_string(common.options.runs_max) + " runs already"));
  }
  if (impl_->ShardOf(run).TryPost({run, std::move(body), done})) return;
  if (claim == Board::Claim::kNew) common.board.DropName(run);
  if (impl_->stopped) return answer(absl::UnavailableError("the daemon is stopping"));
  common.probe.queue_full_total.Add();
  answer(absl::ResourceExhaustedError("run " + run + ": " + std::to_string(common.options.queue_capacity_events) +
                                      " events wait already; send it again"));
}

std::vector<std::shared_ptr<const RunState>> Engine::Runs() const { return impl_->common.board.All(); }

absl::StatusOr<std::shared_ptr<const RunState>> Engine::FindRun(const std::string& run) const {
  std::shared_ptr<const RunState> view = impl_->common.board.Find(run);
  if (view == nullptr) return absl::NotFoundError("run " + run + " is not known");
  return view;
}

std::string Engine::RunOfIntent(const std::string& intent_id) {
  const size_t slash = intent_id.rfind('/');
  return slash == std::string::npos ? "" : intent_id.substr(0, slash);
}

std::vector<std::string> Engine::RunNames() const { return impl_->common.board.Names(); }

void Engine::SetModeLimit(ModeWord word, Done done) {
  Common& common = impl_->common;
  const uint64_t number = common.mode_limit.Ask(word);
  // One shard writes them all, so that the journal has them in the order in which they were said.
  Shard& shard = *impl_->shards.front();
  if (shard.TryPost({.run = "", .body = Shard::LimitWork{number, word}, .done = done})) return;
  const bool holds = common.mode_limit.Settle(number, word, false);
  if (done) done(ModeNotKept("runs to come", word.mode, holds));
}

std::optional<ModeWord> Engine::mode_limit() const { return impl_->common.mode_limit.Get(); }
model::Mode Engine::start_mode() const {
  return impl_->common.mode_limit.Apply(impl_->common.run_options.Get().policy.mode);
}

void Engine::SetRunOptions(const RunOptions& options) { impl_->common.run_options.Set(options); }
RunOptions Engine::run_options() const { return impl_->common.run_options.Get(); }

Probe& Engine::probe() { return impl_->common.probe; }

}  // namespace gyrostat::engine
