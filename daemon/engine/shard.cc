#include "engine/shard.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/log.h"

namespace gyrostat::engine {
namespace {

// Acks and operators' words are events too: a run that gets many of them a report must not make the replay long.
constexpr size_t kEventsPerReportMax = 4;

// But for the mode, which says how runs begin.
bool SameThresholds(const RunOptions& a, RunOptions b) {
  b.policy.mode = a.policy.mode;
  base::ByteWriter x, y;
  base::SaveTo(&x, a);
  base::SaveTo(&y, b);
  return x.bytes() == y.bytes();
}

std::string OfWhom(const model::Finding& f) {
  std::string text;
  if (f.layer) text += " layer " + std::to_string(*f.layer);
  if (f.head) text += " head " + std::to_string(*f.head);
  return text.empty() ? text : text.substr(1);
}

// What a person reading the log wants to know of an event; the rest is in the journal.
void Log(const std::string& run, const Event& event, const RunOutput& out) {
  if (!out.ended_reason.empty())
    base::LogInfo("attempt ended",
                  {{"run", run}, {"attempt", out.ended_attempt.ToHex()}, {"reason", out.ended_reason}});
  if (const auto* hello = std::get_if<HelloEvent>(&event.body); hello != nullptr && out.status.ok())
    base::LogInfo("hello", {{"run", run}, {"attempt", hello->hello.attempt.ToHex()}, {"epoch", hello->hello.epoch},
                            {"boundary", hello->hello.boundary}, {"framework", hello->hello.framework}});
  for (const model::Finding& f : out.findings)
    base::LogInfo(f.step_end ? "finding ended" : "finding",
                  {{"run", run}, {"id", f.id}, {"detector", f.detector}, {"severity", model::Token(f.severity)},
                   {"step", f.step_detected}, {"where", OfWhom(f)}, {"message", f.message}});
  for (const model::Decision& d : out.policy.decisions)
    base::LogDebug("decision", {{"run", run}, {"step", d.step}, {"kind", model::Token(d.kind)},
                                {"acted", d.acted ? "yes" : "no"}, {"reason", d.reason}});
  for (const model::Intervention& i : out.policy.changed)
    base::LogDebug("intervention", {{"run", run}, {"id", i.id}, {"kind", model::Token(i.kind)},
                                    {"state", model::Token(i.state)}, {"orders", i.orders}, {"reason", i.reason}});
}

std::optional<AuditNote> NoteOf(const Event& event) {
  if (const auto* mode = std::get_if<ModeEvent>(&event.body))
    return AuditNote{"mode", model::Token(mode->mode), mode->author, mode->reason};
  if (const auto* approve = std::get_if<ApproveEvent>(&event.body))
    return AuditNote{"approve", approve->id, approve->author, approve->reason};
  if (const auto* reject = std::get_if<RejectEvent>(&event.body))
    return AuditNote{"reject", reject->id, reject->author, reject->reason};
  if (const auto* propose = std::get_if<ProposeEvent>(&event.body))
    return AuditNote{"propose", model::Token(propose->proposal.kind), propose->proposal.author,
                     propose->proposal.reason};
  return std::nullopt;
}

// What must be on disk before it counts: a proposal, an answer to an intent, and a mode that lets more happen or starts
// something anew. Stopping never waits.
bool IsWord(const EventBody& body, const Run& run) {
  if (const auto* event = std::get_if<ModeEvent>(&body))
    return event->mode != model::Mode::kObserve && event->mode >= run.mode();
  return std::holds_alternative<ApproveEvent>(body) || std::holds_alternative<RejectEvent>(body) ||
         std::holds_alternative<ProposeEvent>(body);
}

// A word, to those who must be told that it was not kept.
absl::Status NotDone(const std::string& run, const EventBody& body) {
  if (const auto* event = std::get_if<ModeEvent>(&body)) return ModeNotKept("run " + run, event->mode, false);
  std::string what;
  if (const auto* approve = std::get_if<ApproveEvent>(&body)) what = approve->id + " is not approved";
  else if (const auto* reject = std::get_if<RejectEvent>(&body)) what = reject->id + " is not rejected";
  else what = std::string(model::Token(std::get<ProposeEvent>(body).proposal.kind)) + " is not proposed";
  return absl::AbortedError(what + ": the journal could not keep it; see the daemon's log");
}

// Of a refused report only who sent it is kept: it is no part of the run's history.
std::string EncodeForJournal(const Event& event, const absl::Status& status) {
  const auto* report = std::get_if<ReportEvent>(&event.body);
  if (status.ok() || report == nullptr) return Encode(event);
  return Encode({event.at, ReportEvent{report->attempt, {}}});
}

}  // namespace

void SharedOptions::Set(const RunOptions& options) {
  base::MutexLock lock(mutex_);
  options_ = options;
  version_.fetch_add(1, std::memory_order_release);
}

RunOptions SharedOptions::Get() const {
  base::MutexLock lock(mutex_);
  return options_;
}

void InFlight::Begin() {
  base::MutexLock lock(mutex_);
  ++count_;
}

void InFlight::End() {
  base::MutexLock lock(mutex_);
  if (--count_ == 0) none_.NotifyAll();  // Under the lock: the waiter may destroy this as soon as it has it.
}

void InFlight::WaitForNone() {
  base::MutexLock lock(mutex_);
  while (count_ > 0) none_.Wait(mutex_);
}

Stamp Common::Now() const {
  const auto since_start = std::chrono::duration_cast<base::Milliseconds>(clock->Now() - started);
  return {mono_base_ms + since_start.count(), clock->UnixMs()};
}

Shard::Shard(Common* common, Duty duty)
    : common_(common), duty_(duty), queue_(common->options.queue_capacity_events) {}

void Shard::Adopt(std::unique_ptr<Run> run, size_t replayed) {
  Slot& slot = slots_[run->name()];
  slot.run = std::move(run);
  slot.reports_since_snapshot = slot.events_since_snapshot = replayed;
  slot.snapshot_wanted = false;
}

void Shard::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Shard::Stop() {
  queue_.Close();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Loop();
  }
}

void Shard::Loop() {
  // Waits are real even where the stamps come from a test's clock.
  const base::Clock& waits = base::SystemClock();
  base::MonotonicTime next_tick = waits.Now() + common_->options.tick;
  std::vector<Work> batch;
  while (queue_.PopAllUntil(next_tick, &batch)) {
    if (options_version_ != common_->run_options.version()) TakeOptions();
    for (Work& work : batch) Process(std::move(work));
    batch.clear();
    SettleWords();
    if (waits.Now() >= next_tick) {
      Tick();
      next_tick = waits.Now() + common_->options.tick;
    }
    Flush();
  }
}

void Shard::TakeOptions() {
  options_version_ = common_->run_options.version();
  const RunOptions options = common_->run_options.Get();
  for (auto& [name, slot] : slots_)
    if (!SameThresholds(options, slot.run->options())) Apply(&slot, OptionsEvent{options}, nullptr);
}

void Shard::Tick() {
  if (duty_ == Duty::kRunsAndLimit)
    if (auto unsaved = common_->mode_limit.TakeUnsaved()) AddLimit(unsaved->number, unsaved->word, nullptr);
  for (auto& [name, slot] : slots_) {
    Apply(&slot, TickEvent{}, nullptr);
    if (!slot.snapshot_wanted) continue;
    // For a run that may say nothing more; nor will a client whose window is full before this acknowledges its reports.
    out_.Clear();
    out_.acknowledge_sequence = slot.run->last_sequence();
    AddEntry(&slot, nullptr, Settled(&slot, nullptr, nullptr));
  }
}

void Shard::Process(Work work) {
  if (const auto* limit = std::get_if<LimitWork>(&work.body)) {
    AddLimit(limit->number, limit->word, std::move(work.done));
    return;
  }
  EventBody& body = std::get<EventBody>(work.body);
  Slot* slot = FindOrMake(work.run, body);
  if (slot == nullptr) {
    if (work.done) work.done(absl::NotFoundError("run " + work.run + " is not known"));
    return;
  }
  if (slot->asked) SettleWords();
  if (IsWord(body, *slot->run)) return ApplyWord(slot, std::move(body), std::move(work.done));
  Apply(slot, std::move(body), std::move(work.done));
}

void Shard::ApplyWord(Slot* slot, EventBody body, Engine::Done done) {
  if (slot->dirty) Publish(slot);  // The word itself is not to be seen yet.
  std::string before = slot->run->Save();
  const absl::Status not_done = NotDone(slot->run->name(), body);
  const Event event{common_->Now(), std::move(body)};
  slot->run->Apply(event, &out_);
  common_->probe.events_total.Add();
  if (!out_.changed) {
    if (done) done(out_.status);
    return;
  }
  slot->asked = true;
  ++slot->events_since_snapshot;
  Log(slot->run->name(), event, out_);
  words_.push_back({slot, std::move(before), not_done, out_.policy.orders, std::move(done), false});
  words_in_flight_.Begin();
  AddEntry(slot, &event, [this, waits = &words_.back()](bool durable) {
    waits->durable = durable;
    words_in_flight_.End();
  });
  entries_.back().revocable = true;
}

void Shard::SettleWords() {
  if (words_.empty()) return;
  Flush();
  words_in_flight_.WaitForNone();
  for (Word& word : words_) {
    Slot* slot = word.slot;
    slot->asked = false;
    if (word.durable) {
      Publish(slot);
      for (const model::Order& order : word.orders) common_->outbox->SendOrder(order);
      common_->probe.orders_sent_total.Add(word.orders.size());
      if (word.done) word.done(absl::OkStatus());
      continue;
    }
    common_->probe.journal_failures_total.Add();
    slot->snapshot_wanted = true;
    GYROSTAT_CHECK(slot->run->Load(word.before));
    base::LogWarn("not done", {{"run", slot->run->name()}, {"reason", std::string(word.not_done.message())}});
    if (word.done) word.done(word.not_done);
  }
  words_.clear();
}

Shard::Slot* Shard::FindOrMake(const std::string& run, const EventBody& body) {
  const auto it = slots_.find(run);
  if (it != slots_.end()) return &it->second;
  if (!std::holds_alternative<HelloEvent>(body)) return nullptr;
  RunOptions options = common_->run_options.Get();
  options.policy.mode = common_->mode_limit.Apply(options.policy.mode);
  Slot& slot = slots_[run];
  slot.run = std::make_unique<Run>(run, common_->run_number_next.fetch_add(1), options);
  return &slot;
}

void Shard::AddLimit(uint64_t number, const ModeWord& word, Engine::Done done) {
  JournalEntry entry;
  entry.at = common_->Now();
  entry.mode_limit = word;
  entry.audit = AuditNote{"mode --all", model::Token(word.mode), word.author, word.reason};
  common_->in_flight.Begin();
  entry.done = [common = common_, number, word, done = std::move(done)](bool durable) {
    const bool holds = common->mode_limit.Settle(number, word, durable);
    if (!durable) common->probe.journal_failures_total.Add();
    if (done) done(durable ? absl::OkStatus() : ModeNotKept("runs to come", word.mode, holds));
    common->in_flight.End();
  };
  entries_.push_back(std::move(entry));
}

void Shard::Apply(Slot* slot, EventBody body, Engine::Done done) {
  const Event event{common_->Now(), std::move(body)};
  slot->run->Apply(event, &out_);
  if (!std::holds_alternative<TickEvent>(event.body)) common_->probe.events_total.Add();
  if (std::holds_alternative<ReportEvent>(event.body)) CountReport();
  if (out_.changed) {
    Log(slot->run->name(), event, out_);
    slot->dirty = true;
    ++slot->events_since_snapshot;
    if (std::holds_alternative<ReportEvent>(event.body)) ++slot->reports_since_snapshot;
    AddEntry(slot, &event, Settled(slot, &event.body, std::move(done)));
  } else if (out_.status.ok() && out_.acknowledge_sequence > 0) {
    // In its turn: what it acknowledges may still be on its way to disk.
    AddEntry(slot, nullptr, Settled(slot, nullptr, std::move(done)));
  } else if (done) {
    done(out_.status);
  }
}

void Shard::CountReport() const {
  Probe& probe = common_->probe;
  if (!out_.status.ok()) {
    probe.reports_refused_total.Add();
  } else if (!out_.changed) {
    probe.reports_repeated_total.Add();
  } else {
    probe.reports_total.Add();
  }
}

bool Shard::SnapshotDue(const Slot& slot) const {
  const size_t every = common_->options.snapshot_every_reports;
  return slot.snapshot_wanted || slot.reports_since_snapshot >= every ||
         slot.events_since_snapshot >= every * kEventsPerReportMax;
}

void Shard::AddEntry(Slot* slot, const Event* event, std::function<void(bool)> settled) {
  Run& run = *slot->run;
  JournalEntry entry;
  entry.run = run.name();
  entry.run_number = run.number();
  entry.attempt = run.attempt();
  entry.mode = run.mode();
  entry.at = event != nullptr ? event->at : common_->Now();
  if (SnapshotDue(*slot)) {
    entry.snapshot = run.Save();
    slot->snapshot_wanted = false;
    slot->reports_since_snapshot = slot->events_since_snapshot = 0;
  }
  entry.done = std::move(settled);
  if (event == nullptr) {
    entries_.push_back(std::move(entry));
    return;
  }
  entry.event = EncodeForJournal(*event, out_.status);
  entry.findings = std::move(out_.findings);
  entry.episodes = std::move(out_.episodes);
  entry.decisions = std::move(out_.policy.decisions);
  entry.interventions = std::move(out_.policy.changed);
  entry.orders = out_.policy.orders;
  entry.ended_attempt = out_.ended_attempt;
  entry.ended_reason = out_.ended_reason;
  if (out_.status.ok()) {
    if (const auto* hello = std::get_if<HelloEvent>(&event->body)) entry.hello = hello->hello;
    if (const auto* ack = std::get_if<AckEvent>(&event->body)) entry.ack = ack->ack;
    entry.audit = NoteOf(*event);
  }
  entries_.push_back(std::move(entry));
}

// The slot outlives it: Engine::Stop waits for every entry.
std::function<void(bool)> Shard::Settled(Slot* slot, const EventBody* body, Engine::Done done) const {
  common_->in_flight.Begin();
  const auto* mode = body == nullptr ? nullptr : std::get_if<ModeEvent>(body);
  const std::string who = "run " + slot->run->name();
  const absl::Status lost = mode != nullptr ? ModeNotKept(who, mode->mode, true)
                                            : absl::UnavailableError(
                                                  who + ": the journal could not keep this; see the daemon's log");
  return [common = common_, slot, run = slot->run->name(), attempt = slot->run->attempt(),
          sequence = out_.acknowledge_sequence, orders = out_.policy.orders, status = out_.status, lost,
          done = std::move(done)](bool durable) {
    if (durable) {
      if (sequence > 0) common->outbox->Acknowledge(run, attempt, sequence);
      for (const model::Order& order : orders) common->outbox->SendOrder(order);
      common->probe.orders_sent_total.Add(orders.size());
      if (done) done(status);
    } else {
      common->probe.journal_failures_total.Add();
      slot->snapshot_wanted = true;
      if (done) done(lost);
    }
    common->in_flight.End();
  };
}

void Shard::Publish(Slot* slot) {
  common_->board.Publish(std::make_shared<const RunState>(slot->run->View()));
  slot->dirty = false;
}

void Shard::Flush() {
  for (auto& [name, slot] : slots_)
    if (slot.dirty) Publish(&slot);
  for (JournalEntry& entry : entries_) common_->journal->Append(std::move(entry));
  entries_.clear();
}

}  // namespace gyrostat::engine
