#include "policy/run_policy.h"

#include <algorithm>
#include <utility>

#include "policy/clip_state.h"
#include "policy/collecting.h"
#include "policy/lifecycle.h"
#include "policy/local_mode.h"
#include "policy/measure_flow.h"
#include "policy/measure_judging.h"
#include "policy/measure_orders.h"
#include "policy/measure_plan.h"
#include "policy/measures.h"
#include "policy/ordering.h"
#include "policy/resumption.h"
#include "policy/settling.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;

// First in saved bytes; another number after any change of what is saved.
constexpr uint32_t kFormat = 0x67700004;

bool SameRules(const QkClipOptions& a, const QkClipOptions& b) {
  return a.tau == b.tau && a.where == b.where && a.variant == b.variant;
}

}  // namespace

struct RunPolicy::State {
  PolicyOptions options;
  model::Mode mode;
  ClipState clip;
  Measures measures;

  State(std::string run, PolicyOptions o) : options(std::move(o)), mode(options.mode) { clip.run = std::move(run); }
  Terms terms() const { return {mode, options}; }

  // What a call works on. `terms` outlives it.
  Desk At(const Terms& terms, PolicyOutput* out) { return {terms, &clip, &measures, out}; }

  void OpenAttempt(const model::Hello& hello, PolicyOutput* out);
  void OpenEpoch(uint32_t epoch, PolicyOutput* out);
  void OpenLedger();
  void EndBoth(HistoryEnd end, const std::string& sentence, PolicyOutput* out);
  void TakeMeasures(const model::Report& report, model::Boundary newest, PolicyOutput* out);
  absl::Status Waiting(const std::string& id, const std::string& run) const;
  template <class Archive>
  void Fields(Archive& a) {
    a(mode, clip, measures);
  }
};

std::vector<model::InterventionKind> AutomaticByDefault() {
  return {model::InterventionKind::kQkClip, model::InterventionKind::kCollect};
}

void PolicyOutput::Clear() {
  decisions.clear();
  changed.clear();
  orders.clear();
  findings.clear();
}

RunPolicy::RunPolicy(std::string run, PolicyOptions options)
    : state_(std::make_unique<State>(std::move(run), std::move(options))) {}
RunPolicy::~RunPolicy() = default;
RunPolicy::RunPolicy(RunPolicy&&) noexcept = default;
RunPolicy& RunPolicy::operator=(RunPolicy&&) noexcept = default;

void RunPolicy::State::OpenLedger() {
  clip.mirror.Open(clip.job->model.layers, clip.job->model.heads);
  clip.book.Open(clip.job->model.layers, clip.job->model.heads);
  clip.tug.Open(clip.mirror.ledger(), clip.now);
}

// All orders, bases and levels die.
void RunPolicy::State::EndBoth(HistoryEnd end, const std::string& sentence, PolicyOutput* out) {
  EndHistory(sentence, &clip, out);
  const Terms now = terms();
  EndMeasureHistory(At(now, out), end, sentence);
}

void RunPolicy::State::OpenAttempt(const model::Hello& hello, PolicyOutput* out) {
  if (clip.job) {
    EndBoth(HistoryEnd::kAttempt, "The attempt ended before more was heard.", out);
    clip.base = ++clip.now;
  }
  OpenHistory(hello.model, clip, &measures);
  clip.job = JobOf(hello);
  OpenLedger();
}

void RunPolicy::State::OpenEpoch(uint32_t epoch, PolicyOutput* out) {
  EndBoth(HistoryEnd::kEpoch, "The weights got another history.", out);
  OpenHistory(clip.job->model, clip, &measures);
  measures.registers.Doubt("the weights got another history, and no hello has told yet where the registers stand");
  clip.job->epoch = epoch;
  OpenLedger();
}

void RunPolicy::OnHello(const model::Hello& hello, PolicyOutput* out) {
  State& s = *state_;
  ClipState& clip = s.clip;
  const bool had_alpha = HadAlpha(s.measures);
  if (!clip.job || clip.job->attempt != hello.attempt) {
    s.OpenAttempt(hello, out);
  } else {
    const bool other_model = hello.model.layers != clip.job->model.layers || hello.model.heads != clip.job->model.heads;
    const bool other_history = hello.epoch != clip.job->epoch || other_model;
    if (other_history) {
      s.EndBoth(HistoryEnd::kEpoch, "The weights got another history.", out);
      OpenHistory(hello.model, clip, &s.measures);
    }
    clip.job = JobOf(hello);
    if (other_history) s.OpenLedger();
  }
  const Terms terms = s.terms();
  const Desk desk = s.At(terms, out);
  clip.mirror.Settle(hello.ledger_version, hello.ledger);
  s.measures.registers.Settle(hello.registers);
  CheckAlpha(desk, had_alpha);
  SettleByHello(hello, &clip, out);
  SettleMeasuresByHello(desk, hello);
  ResendLocal(hello, &clip, out);
  Arm(terms, "", &clip, out);
}

void RunPolicy::OnFindings(std::span<const model::Finding> said, const EpisodeNow& episode) {
  TakeFindings(said, episode, &state_->measures);
}

// What a report says to the measures, and what they answer.
void RunPolicy::State::TakeMeasures(const model::Report& report, model::Boundary newest, PolicyOutput* out) {
  const Terms now = terms();
  const Desk desk = At(now, out);
  const Levels levels = TakeReport(report, &measures);
  const remedy::Schedule schedule = ScheduleOf(clip.job->model);
  const bool sound = remedy::CheckSchedule(schedule).empty() && report.step >= 0;
  measures.envelope.Advance(sound ? remedy::BaseRate(schedule, static_cast<uint64_t>(report.step))
                                  : measures.rate.value_or(0), report.boundary);
  SettleOverdueMeasures(desk, newest);
  JudgeMeasures(desk, report, levels);
  if (report.boundary + clip.book.Reach() <= newest) return;  // Old evidence, which orders nothing.
  CheckRay(desk, report);
  AnswerFindings(desk, report, newest);
  Collect(desk, report, newest);
}

void RunPolicy::OnReport(const model::Report& report, model::Boundary newest_boundary, PolicyOutput* out) {
  State& s = *state_;
  ClipState& clip = s.clip;
  if (!clip.job || report.epoch < clip.job->epoch) return;
  if (report.epoch > clip.job->epoch) s.OpenEpoch(report.epoch, out);
  clip.now = std::max(clip.now, clip.TimeOf(report.boundary));
  clip.step = report.step;
  // Reports may know better than the hello how maxima are made: a client learns it when attention first runs.
  if (report.attn_logit_kind != model::LogitKind::kUnknown) clip.job->attn_logit.kind = report.attn_logit_kind;
  const Terms terms = s.terms();
  TakeLocalClips(terms, report, &clip, out);
  if (!clip.job->live) return;
  const model::Boundary newest = std::max(newest_boundary, report.boundary);
  SettleOverdue(newest, &clip, out);
  JudgeIntent(terms, report, &clip, out);
  AnswerReport(terms, report, newest, &clip, out);
  CloseIfQuiet(terms, &clip, out);
  s.TakeMeasures(report, newest, out);
  if (report.boundary + clip.book.Reach() <= newest) return;
  Arm(terms, "", &clip, out);
  RemindLocal(&clip, out);
}

void RunPolicy::OnAck(const model::Ack& ack, PolicyOutput* out) {
  State& s = *state_;
  if (!s.clip.job) return;
  const Terms terms = s.terms();
  if (!TakeMeasureAck(s.At(terms, out), ack)) TakeAck(ack, &s.clip, out);
}

void RunPolicy::OnEnd(PolicyOutput* out) {
  ClipState& clip = state_->clip;
  if (!clip.job || !clip.job->live) return;
  state_->EndBoth(HistoryEnd::kAttempt, "The attempt ended before more was heard.", out);
  clip.job->live = false;
}

// Whether `id` names the intent that waits for a person.
absl::Status RunPolicy::State::Waiting(const std::string& id, const std::string& run) const {
  const auto is = [&id](InterventionState state) -> absl::Status {
    if (state == InterventionState::kProposed) return absl::OkStatus();
    return absl::FailedPreconditionError("intervention " + id + " is " + model::Token(state) + ", wanted proposed");
  };
  const Intent* open = clip.intents.open();
  if (open != nullptr && open->view.id == id) return is(open->view.state);
  for (const KindBook& book : measures.kinds)
    if (book.open && book.open->view.id == id) return is(book.open->view.state);
  for (const model::Intervention& past : measures.past)
    if (past.id == id) return is(past.state);
  const std::string prefix = run + "/";
  uint64_t number = 0;
  if (id.size() > prefix.size() && id.size() <= prefix.size() + 18 && id.compare(0, prefix.size(), prefix) == 0 &&
      std::all_of(id.begin() + static_cast<std::ptrdiff_t>(prefix.size()), id.end(),
                  [](char c) { return c >= '0' && c <= '9'; }))
    number = std::stoull(id.substr(prefix.size()));
  const std::optional<InterventionState> state = clip.intents.StateOf(number);
  if (!state || prefix + std::to_string(number) != id)
    return absl::NotFoundError("run " + run + " has no intervention " + id);
  return is(*state);
}

absl::Status RunPolicy::Propose(const Proposal& proposal, PolicyOutput* out) {
  const Terms terms = state_->terms();
  return ProposeMeasure(state_->At(terms, out), proposal);
}

absl::Status RunPolicy::Approve(const std::string& id, const std::string& author, const std::string& reason,
                                PolicyOutput* out) {
  State& s = *state_;
  if (absl::Status status = s.Waiting(id, s.clip.run); !status.ok()) return status;
  const Terms terms = s.terms();
  if (Measure* measure = s.measures.Find(id)) {
    ApproveMeasure(s.At(terms, out), author, reason, measure);
    return absl::OkStatus();
  }
  Intent* intent = s.clip.intents.open();
  intent->view.state = InterventionState::kApproved;
  intent->view.author = author;
  intent->by_person = true;
  intent->opening = Joined(intent->opening, "Approved by " + author + (reason.empty() ? "." : ": " + reason));
  intent->view.reason = intent->opening;
  intent->active_at = s.clip.now;
  s.clip.decisions.Forget();
  Tell(intent->view, out);
  Arm(terms, "approved by " + author, &s.clip, out);
  return absl::OkStatus();
}

absl::Status RunPolicy::Reject(const std::string& id, const std::string& author, const std::string& reason,
                               PolicyOutput* out) {
  State& s = *state_;
  if (absl::Status status = s.Waiting(id, s.clip.run); !status.ok()) return status;
  const Terms terms = s.terms();
  if (Measure* measure = s.measures.Find(id)) {
    RejectMeasure(s.At(terms, out), author, reason, measure);
    return absl::OkStatus();
  }
  s.clip.intents.open()->view.author = author;
  // Not proposed again at the next step: the person has just said no.
  EndIntent(InterventionState::kRejected, "Rejected by " + author + (reason.empty() ? "." : ": " + reason),
            s.options.qk_clip.quiet_boundaries, author + " rejected intent " + id, &s.clip, out);
  return absl::OkStatus();
}

void RunPolicy::SetMode(model::Mode mode, const std::string& author, PolicyOutput* out) {
  State& s = *state_;
  s.mode = mode;
  // Somebody looked at it: what the policy had switched off for itself gets another chance.
  s.clip.failures = 0;
  s.clip.disabled.clear();
  s.clip.alarms.End(Alarms::Key::kDisabled, s.clip.step, &out->findings);
  s.clip.intents.EndPause();
  const std::string why = std::string("mode is ") + model::Token(mode) + " now, set by " + author;
  const Terms terms = s.terms();
  const Desk desk = s.At(terms, out);
  ForgiveMeasures(desk);
  FollowTerms(terms, why, &s.clip, out);
  FollowTermsOfMeasures(desk, why);
  Arm(terms, why, &s.clip, out);
}

void RunPolicy::SetOptions(const PolicyOptions& options, PolicyOutput* out) {
  State& s = *state_;
  const bool same = SameRules(s.options.qk_clip, options.qk_clip);
  s.options = options;
  if (!same) {
    s.clip.local.refused.clear();
    EndIntent(InterventionState::kWithdrawn, "Stopped: the rules of qk_clip changed.", 0, "", &s.clip, out);
  }
  const Terms terms = s.terms();
  FollowTerms(terms, "the configuration changed", &s.clip, out);
  FollowTermsOfMeasures(s.At(terms, out), "the configuration changed");
  Arm(terms, "the configuration changed", &s.clip, out);
}

model::Mode RunPolicy::mode() const { return state_->mode; }

double RunPolicy::tau() const { return state_->options.qk_clip.tau; }

const std::vector<std::string>& RunPolicy::allow() const {
  static const std::vector<std::string> kNothing;
  return state_->clip.job ? state_->clip.job->allow : kNothing;
}

std::vector<model::Intervention> RunPolicy::Open() const {
  std::vector<model::Intervention> all;
  if (const Intent* open = state_->clip.intents.open()) all.push_back(open->view);
  for (const KindBook& book : state_->measures.kinds)
    if (book.open) all.push_back(book.open->view);
  // Ids of a run differ in their numbers alone.
  std::ranges::sort(all, {}, [](const model::Intervention& each) { return std::pair(each.id.size(), each.id); });
  return all;
}

uint32_t RunPolicy::pending() const {
  uint32_t count = 0;
  for (const model::Intervention& each : Open()) count += each.state == InterventionState::kProposed ? 1 : 0;
  return count;
}

const remedy::ClipLedger& RunPolicy::ledger() const { return state_->clip.mirror.ledger(); }

void RunPolicy::Save(base::ByteWriter* out) const {
  out->Put(kFormat);
  base::SaveTo(out, *state_);
}

bool RunPolicy::Load(base::ByteReader* in) {
  auto loaded = std::make_unique<State>(state_->clip.run, state_->options);
  if (in->Get<uint32_t>() == kFormat && base::LoadFrom(in, loaded.get()) && loaded->clip.run == state_->clip.run) {
    state_ = std::move(loaded);
    return true;
  }
  state_ = std::make_unique<State>(std::move(state_->clip.run), std::move(state_->options));
  return false;
}

}  // namespace gyrostat::policy
