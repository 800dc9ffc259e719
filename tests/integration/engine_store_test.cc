// Engine and store together: a daemon that is started again and again tells the same story as one that never stopped,
// and what it keeps is enough to check every clip.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "engine/engine.h"
#include "remedy/ticks.h"
#include "store/store.h"
#include "support/engine_fakes.h"
#include "support/manual_clock.h"
#include "support/scripted_job.h"
#include "support/temp_dir.h"

namespace gyrostat {
namespace {

using testing::kScriptedRun;

// The script, and for each event whether it changes the run.
struct Life {
  std::vector<engine::Event> events;
  std::vector<bool> changes;
};
const Life& TheLife() {
  static const Life life = [] {
    Life l;
    engine::Run actor(kScriptedRun, 1, testing::ScriptedOptions());
    l.events = testing::Script(&actor).Record();
    engine::Run run(kScriptedRun, 1, testing::ScriptedOptions());
    engine::RunOutput out;
    for (const engine::Event& event : l.events) {
      run.Apply(event, &out);
      l.changes.push_back(out.changed);
    }
    return l;
  }();
  return life;
}

// One life of a daemon on a data directory.
struct Daemon {
  Daemon(const std::string& dir, const engine::RunOptions& options, testing::FakeOutbox* outbox)
      : store(*store::Store::Open({.data_dir = dir})),
        engine({.shards = 1, .snapshot_every_reports = 16, .tick = base::Milliseconds(3'600'000), .run = options},
               store.get(), outbox, &clock) {
    EXPECT_TRUE(engine.Restore(store.get()).ok());
    engine.Start();
  }

  testing::ManualClock clock;
  std::unique_ptr<store::Store> store;
  engine::Engine engine;
};

// What a read returned; fails the test where it could not.
template <class T>
T Ok(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *std::move(value) : T();
}

template <class T>
std::string BytesOf(const T& value) {
  base::ByteWriter out;
  base::SaveTo(&out, value);
  return out.Take();
}

// Everything that a reader could compare.
struct Story {
  std::vector<std::string> findings, episodes, interventions, orders_kept, acks, orders_sent;
  std::vector<std::tuple<model::Step, double>> grad_norm;
  std::string view;
  bool operator==(const Story&) const = default;
};

std::string BytesOfView(const engine::RunState& view) {
  base::ByteWriter out;
  base::SaveTo(&out, view.attempt);
  base::SaveTo(&out, view.open_findings);
  base::SaveTo(&out, view.episode);
  base::SaveTo(&out, view.open_interventions);
  base::SaveTo(&out, view.recent_decisions);
  base::SaveTo(&out, view.worst_heads);
  base::SaveTo(&out, view.attn_logit_histogram);
  base::SaveTo(&out, view.findings_total);
  base::SaveTo(&out, view.interventions_total);
  base::SaveTo(&out, view.outcomes_total);
  base::SaveTo(&out, view.last);
  out.Put(view.attempts), out.Put(view.life), out.Put(view.mode), out.Put(view.step), out.Put(view.tau);
  out.Put(view.attn_logit_sum), out.Put(view.qk_clip_scale_min), out.Put(view.reports_total);
  out.Put(view.reports_dropped_total);
  return out.Take();
}

Story StoryOf(Daemon* daemon, testing::FakeOutbox* outbox) {
  Story story;
  for (const auto& row : Ok(daemon->store->Findings(kScriptedRun)))
    story.findings.push_back(BytesOf(row.finding) + row.attempt.ToHex());
  for (const auto& row : Ok(daemon->store->Episodes(kScriptedRun)))
    story.episodes.push_back(BytesOf(row.diagnosis) + row.attempt.ToHex());
  for (const auto& row : Ok(daemon->store->Interventions(kScriptedRun)))
    story.interventions.push_back(BytesOf(row.intervention) + row.attempt.ToHex());
  for (const auto& order : Ok(daemon->store->Orders(kScriptedRun))) story.orders_kept.push_back(BytesOf(order));
  for (const auto& ack : Ok(daemon->store->Acks(kScriptedRun))) story.acks.push_back(BytesOf(ack));
  for (const auto& order : outbox->orders()) story.orders_sent.push_back(BytesOf(order));
  engine::SeriesQuery query;
  query.run = kScriptedRun;
  query.signal = model::Signal::kGradNorm;
  for (const auto& point : Ok(daemon->store->Series(query)).points)
    story.grad_norm.emplace_back(point.step, point.value);
  story.view = BytesOfView(**daemon->engine.FindRun(kScriptedRun));
  EXPECT_TRUE(daemon->store->VerifyAudit().ok());
  return story;
}

// Plays the life; the daemon is started anew before each event for which `restart` says so. Ticks are the test's.
Story Play(const std::string& dir, const std::function<bool(size_t)>& restart) {
  const Life& life = TheLife();
  testing::FakeOutbox outbox;
  engine::RunOptions options = testing::ScriptedOptions();
  auto daemon = std::make_unique<Daemon>(dir, options, &outbox);
  int64_t born_ms = 0;      // By the stamps, when this daemon began ...
  int64_t recorded_ms = 0;  // ... which is the newest stamp on record: the time while no daemon lives is not counted.
  for (size_t i = 0; i < life.events.size(); ++i) {
    const engine::Event& event = life.events[i];
    const bool is_tick = std::holds_alternative<engine::TickEvent>(event.body);
    if (!is_tick && restart(i)) {
      daemon.reset();
      daemon = std::make_unique<Daemon>(dir, options, &outbox);
      born_ms = recorded_ms;
    }
    const int64_t now_ms = born_ms + daemon->clock.UnixMs() - testing::ManualClock::kUnixStartMs;
    daemon->clock.Advance(base::Milliseconds(event.at.mono_ms - now_ms));
    (void)testing::PostAndWait(&daemon->engine, kScriptedRun, event.body);  // Refusals are part of the life.
    if (life.changes[i]) recorded_ms = event.at.mono_ms;
    if (const auto* o = std::get_if<engine::OptionsEvent>(&event.body)) options = o->options;
  }
  return StoryOf(daemon.get(), &outbox);
}

TEST(EngineStore, TellsTheSameStoryHoweverOftenItIsStartedAnew) {
  const testing::TempDir straight_dir, restarted_dir;
  const Story straight = Play(straight_dir.path(), [](size_t) { return false; });
  EXPECT_GT(straight.findings.size(), 5u);
  EXPECT_GT(straight.episodes.size(), 0u);
  EXPECT_GT(straight.interventions.size(), 2u);
  EXPECT_EQ(straight.orders_sent, straight.orders_kept);
  size_t restarts = 0;
  const Story restarted = Play(restarted_dir.path(), [&](size_t i) { return i > 0 && i % 7 == 0 && ++restarts > 0; });
  EXPECT_GT(restarts, 30u);
  EXPECT_EQ(restarted.findings, straight.findings);
  EXPECT_EQ(restarted.episodes, straight.episodes);
  EXPECT_EQ(restarted.interventions, straight.interventions);
  EXPECT_EQ(restarted.orders_sent, straight.orders_sent);
  EXPECT_EQ(restarted.orders_kept, straight.orders_kept);
  EXPECT_EQ(restarted.acks, straight.acks);
  EXPECT_EQ(restarted.grad_norm, straight.grad_norm);
  EXPECT_EQ(restarted.view, straight.view);
}

// protocol.md §1.4: a target is the ledger under which the forward ran plus ln(S/tau), at most ln 10; what is applied
// is what the target exceeds the ledger by.
TEST(EngineStore, KeepsEnoughToCheckEveryAppliedTick) {
  const testing::TempDir temp;
  Play(temp.path(), [](size_t i) { return i == 100; });
  auto store = *store::Store::Open({.data_dir = temp.path()});
  using History = std::tuple<model::AttemptId, uint32_t>;  // Attempt and epoch.
  std::map<std::tuple<History, model::Boundary>, model::Report> forwards;
  ASSERT_TRUE(store->ForEachReport(kScriptedRun, [&](const model::AttemptId& attempt, const model::Report& report) {
    forwards[{{attempt, report.epoch}, report.boundary}] = report;
  }).ok());
  std::map<model::OrderId, model::Ack> acks;
  for (const model::Ack& ack : Ok(store->Acks(kScriptedRun))) acks[ack.order_id] = ack;
  std::map<History, std::map<uint64_t, remedy::Ticks>> ledgers;  // By version. One head is ever clipped.
  size_t applied = 0;
  for (const model::Order& order : Ok(store->Orders(kScriptedRun))) {
    const History history{order.attempt, order.epoch};
    auto& ledger = ledgers[history];
    ledger.emplace(0, 0);
    const model::Report& forward = forwards.at({history, order.basis});
    ASSERT_EQ(order.entries.size(), 1u);
    const model::ClipEntry& entry = order.entries[0];
    const size_t index = entry.layer * testing::kPlainHeads + entry.head;
    EXPECT_EQ(forward.Array(model::Signal::kAttnLogitMax)[index], entry.reported_max) << "to the last bit";
    const remedy::Ticks full = remedy::LnTicks(double{entry.reported_max} / order.tau);
    const remedy::Ticks wanted = std::min(full, remedy::kClipTicksMax);
    EXPECT_EQ(entry.target_ticks, ledger.at(forward.ledger_version) + wanted);
    const auto ack = acks.find(order.id);
    if (ack == acks.end() || ack->second.outcome != model::AckOutcome::kApplied) continue;
    const remedy::Ticks before = ledger.at(ack->second.ledger_version_before);
    EXPECT_EQ(ack->second.applied.ticks.at(0), entry.target_ticks - before);
    ledger[ack->second.ledger_version_after] = entry.target_ticks;
    ++applied;
  }
  EXPECT_GT(applied, 10u);
}

}  // namespace
}  // namespace gyrostat
