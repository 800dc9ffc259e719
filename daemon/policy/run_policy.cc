#include "policy/run_policy.h"

#include <algorithm>
#include <utility>

#include "policy/clip_state.h"
#include "policy/lifecycle.h"
#include "policy/local_mode.h"
#include "policy/ordering.h"
#include "policy/settling.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionState;

// First in saved bytes; another number after any change of what is saved.
constexpr uint32_t kFormat = 0x67700003;

bool SameRules(const QkClipOptions& a, const QkClipOptions& b) {
  return a.tau == b.tau && a.where == b.where && a.variant == b.variant;
}

}  // namespace

struct RunPolicy::State {
  PolicyOptions options;
  model::Mode mode;
  ClipState clip;

  State(std::string run, PolicyOptions o) : options(std::move(o)), mode(options.mode) { clip.run = std::move(run); }
  Terms terms() const { return {mode, options}; }

  void OpenAttempt(const model::Hello& hello, PolicyOutput* out);
  void OpenEpoch(uint32_t epoch, PolicyOutput* out);
  void OpenLedger();
  absl::Status Waiting(const std::string& id, const std::string& run) const;
  template <class Archive>
  void Fields(Archive& a) {
    a(mode, clip);
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

void RunPolicy::State::OpenAttempt(const model::Hello& hello, PolicyOutput* out) {
  if (clip.job) {
    EndHistory("The attempt ended before more was heard.", &clip, out);
    clip.base = ++clip.now;
  }
  clip.job = JobOf(hello);
  OpenLedger();
}

void RunPolicy::State::OpenEpoch(uint32_t epoch, PolicyOutput* out) {
  EndHistory("The weights got another history.", &clip, out);
  clip.job->epoch = epoch;
  OpenLedger();
}

void RunPolicy::OnHello(const model::Hello& hello, PolicyOutput* out) {
  State& s = *state_;
  ClipState& clip = s.clip;
  if (!clip.job || clip.job->attempt != hello.attempt) {
    s.OpenAttempt(hello, out);
  } else {
    const bool other_model = hello.model.layers != clip.job->model.layers || hello.model.heads != clip.job->model.heads;
    const bool other_history = hello.epoch != clip.job->epoch || other_model;
    if (other_history) EndHistory("The weights got another history.", &clip, out);
    clip.job = JobOf(hello);
    if (other_history) s.OpenLedger();
  }
  clip.mirror.Settle(hello.ledger_version, hello.ledger);
  SettleByHello(hello, &clip, out);
  ResendLocal(hello, &clip, out);
  Arm(s.terms(), "", &clip, out);
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
  if (report.boundary + clip.book.Reach() <= newest) return;
  Arm(terms, "", &clip, out);
  RemindLocal(&clip, out);
}

void RunPolicy::OnAck(const model::Ack& ack, PolicyOutput* out) { TakeAck(ack, &state_->clip, out); }

void RunPolicy::OnEnd(PolicyOutput* out) {
  ClipState& clip = state_->clip;
  if (!clip.job || !clip.job->live) return;
  EndHistory("The attempt ended before more was heard.", &clip, out);
  clip.job->live = false;
}

// Whether `id` names the intent that waits for a person.
absl::Status RunPolicy::State::Waiting(const std::string& id, const std::string& run) const {
  const Intent* open = clip.intents.open();
  if (open != nullptr && open->view.id == id) {
    if (open->view.state == InterventionState::kProposed) return absl::OkStatus();
    return absl::FailedPreconditionError("intervention " + id + " is " + model::Token(open->view.state) +
                                         ", wanted proposed");
  }
  const std::string prefix = run + "/";
  uint64_t number = 0;
  if (id.size() > prefix.size() && id.size() <= prefix.size() + 18 && id.compare(0, prefix.size(), prefix) == 0 &&
      std::all_of(id.begin() + static_cast<std::ptrdiff_t>(prefix.size()), id.end(),
                  [](char c) { return c >= '0' && c <= '9'; }))
    number = std::stoull(id.substr(prefix.size()));
  const std::optional<InterventionState> state = clip.intents.StateOf(number);
  if (!state || prefix + std::to_string(number) != id)
    return absl::NotFoundError("run " + run + " has no intervention " + id);
  return absl::FailedPreconditionError("intervention " + id + " is " + model::Token(*state) + ", wanted proposed");
}

absl::Status RunPolicy::Approve(const std::string& id, const std::string& author, const std::string& reason,
                                PolicyOutput* out) {
  State& s = *state_;
  if (absl::Status status = s.Waiting(id, s.clip.run); !status.ok()) return status;
  Intent* intent = s.clip.intents.open();
  intent->view.state = InterventionState::kApproved;
  intent->view.author = author;
  intent->by_person = true;
  intent->opening = Joined(intent->opening, "Approved by " + author + (reason.empty() ? "." : ": " + reason));
  intent->view.reason = intent->opening;
  intent->active_at = s.clip.now;
  s.clip.decisions.Forget();
  Tell(*intent, out);
  Arm(s.terms(), "approved by " + author, &s.clip, out);
  return absl::OkStatus();
}

absl::Status RunPolicy::Reject(const std::string& id, const std::string& author, const std::string& reason,
                               PolicyOutput* out) {
  State& s = *state_;
  if (absl::Status status = s.Waiting(id, s.clip.run); !status.ok()) return status;
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
  FollowTerms(s.terms(), why, &s.clip, out);
  Arm(s.terms(), why, &s.clip, out);
}

void RunPolicy::SetOptions(const PolicyOptions& options, PolicyOutput* out) {
  State& s = *state_;
  const bool same = SameRules(s.options.qk_clip, options.qk_clip);
  s.options = options;
  if (!same) {
    s.clip.local.refused.clear();
    EndIntent(InterventionState::kWithdrawn, "Stopped: the rules of qk_clip changed.", 0, "", &s.clip, out);
  }
  FollowTerms(s.terms(), "the configuration changed", &s.clip, out);
  Arm(s.terms(), "the configuration changed", &s.clip, out);
}

model::Mode RunPolicy::mode() const { return state_->mode; }

double RunPolicy::tau() const { return state_->options.qk_clip.tau; }

const std::vector<std::string>& RunPolicy::allow() const {
  static const std::vector<std::string> kNothing;
  return state_->clip.job ? state_->clip.job->allow : kNothing;
}

std::vector<model::Intervention> RunPolicy::Open() const {
  const Intent* open = state_->clip.intents.open();
  return open == nullptr ? std::vector<model::Intervention>{} : std::vector<model::Intervention>{open->view};
}

uint32_t RunPolicy::pending() const {
  const Intent* open = state_->clip.intents.open();
  return open != nullptr && open->view.state == InterventionState::kProposed ? 1 : 0;
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
