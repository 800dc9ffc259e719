#include "engine/run.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/attempt_book.h"
#include "engine/finding_book.h"
#include "engine/tally.h"
#include "remedy/ticks.h"

namespace gyrostat::engine {
namespace {

constexpr uint32_t kVersion = 5;  // Of what Save writes.

// An order ends at most this many boundaries after its basis (protocol.md §1.9): evidence older than that orders
// nothing.
constexpr model::Boundary kEvidenceBoundariesMax = 64;

absl::Status Refused(const std::string& text) { return absl::InvalidArgumentError(text); }

std::string Number(uint64_t n) { return std::to_string(n); }

}  // namespace

struct Run::State {
  State(std::string run, uint64_t run_number, const RunOptions& run_options)
      : name(std::move(run)), number(run_number), options(run_options), findings(run_number),
        episodes(run_number), silence(options.detect.silence), policy(name, options.policy) {}

  std::string name;
  uint64_t number;
  RunOptions options;
  AttemptBook attempts;
  FindingBook findings;
  Episodes episodes;
  Tally tally;
  model::ModelSpec spec;  // Of the current attempt, with the two below.
  model::AttnLogitInfo attn_logit;
  uint32_t ranks = 1;
  std::vector<std::unique_ptr<detect::Detector>> detectors;
  detect::Silence silence;
  policy::RunPolicy policy;
  model::Report last;
  int64_t last_report_unix_ms = 0;
  int64_t last_mono_ms = 0;
  bool contested = false;   // As last told in a decision.
  bool after_break = true;  // No report since the detectors last started again: its step may be any.
  std::vector<model::Finding> found;  // Scratch.

  void On(const HelloEvent& event, const Stamp& now, RunOutput* out);
  void On(const ReportEvent& event, const Stamp& now, RunOutput* out);
  void On(const AckEvent& event, const Stamp& now, RunOutput* out);
  void On(const ByeEvent& event, const Stamp& now, RunOutput* out);
  void On(const TickEvent& event, const Stamp& now, RunOutput* out);
  void On(const ModeEvent& event, const Stamp& now, RunOutput* out);
  void On(const ApproveEvent& event, const Stamp& now, RunOutput* out);
  void On(const RejectEvent& event, const Stamp& now, RunOutput* out);
  void On(const ProposeEvent& event, const Stamp& now, RunOutput* out);
  void On(const OptionsEvent& event, const Stamp& now, RunOutput* out);

  std::string Attempt(const model::AttemptId& id) const { return "attempt " + id.ToHex() + " of run " + name; }
  absl::Status Stranger(const model::AttemptId& id) const {
    return absl::FailedPreconditionError(Attempt(id) + " has not said hello");
  }
  absl::Status Superseded(const model::AttemptId& id) const {
    return absl::FailedPreconditionError(Attempt(id) + " was superseded by attempt " + attempts.current().ToHex() +
                                         ": while both speak, orders go to neither");
  }
  std::string WhyNot(const model::Report& report) const;

  void TakeFound(RunOutput* out) {
    for (model::Finding& finding : found) findings.Take(std::move(finding), &out->findings);
    found.clear();
  }
  // Of silence, which stands outside the detectors because it needs the clock.
  void TakeFound(std::optional<model::Finding> finding, RunOutput* out) {
    if (!finding || !SilenceVoice().enabled) return;
    finding->severity = std::min(finding->severity, SilenceVoice().severity_max);
    findings.Take(*std::move(finding), &out->findings);
  }
  const detect::Voice& SilenceVoice() const { return options.detect.voices[detect::DetectorIndex("silence")]; }
  void Break(detect::Break kind, RunOutput* out);
  void SetSpec(const model::ModelSpec& new_spec, detect::Break kind, RunOutput* out);
  void TellContest(const Stamp& now, RunOutput* out);
  void TellPolicy(const RunOutput& out);
  void AskPolicy(const model::Report& report, RunOutput* out);
  void SaveDetectors(base::ByteWriter* out) const;
  bool LoadDetectors(base::ByteReader* in);

  template <class Archive>
  void Fields(Archive& a) {
    a(attempts, findings, episodes, tally, spec, attn_logit, ranks, silence, last, last_report_unix_ms, last_mono_ms,
      contested, after_break);
  }
};

void RunOutput::Clear() {
  changed = false;
  status = absl::OkStatus();
  findings.clear();
  episodes.clear();
  policy.Clear();
  acknowledge_sequence = 0;
  ended_attempt = {};
  ended_reason.clear();
}

// Relative baselines start again. A clip is no break (protocol.md §9): it leaves loss and gradients as they were.
void Run::State::Break(detect::Break kind, RunOutput* out) {
  for (const auto& detector : detectors) detector->OnBreak(kind, last.step, &found);
  after_break = true;
  TakeFound(out);
}

// Another model needs other detectors; what the old ones had open ends with them.
void Run::State::SetSpec(const model::ModelSpec& new_spec, detect::Break kind, RunOutput* out) {
  Break(kind, out);
  for (const auto& detector : detectors) findings.End(detector->name(), last.step, &out->findings);
  spec = new_spec;
  detectors = detect::MakeDetectors(options.detect, spec);
}

void Run::State::On(const HelloEvent& event, const Stamp& now, RunOutput* out) {
  const model::Hello& hello = event.hello;
  const AttemptBook::Speaker who = attempts.Who(hello.attempt);
  if (who == AttemptBook::Speaker::kSuperseded) {
    out->changed = attempts.HearRival(hello.attempt, now.mono_ms);
    out->status = Superseded(hello.attempt);
    return;
  }
  std::optional<detect::Break> kind;
  if (who == AttemptBook::Speaker::kStranger) {
    if (attempts.any() && !attempts.ended()) {
      policy.OnEnd(&out->policy);
      out->ended_attempt = attempts.current();
      out->ended_reason = "superseded by attempt " + hello.attempt.ToHex();
    }
    attempts.Open(hello.attempt, hello.epoch, hello.first_sequence);
    kind = detect::Break::kNewAttempt;
  } else {
    if (hello.epoch < attempts.epoch()) {
      out->status = Refused(Attempt(hello.attempt) + " said hello with epoch " + Number(hello.epoch) +
                            ", wanted " + Number(attempts.epoch()) + " or later");
      return;
    }
    if (hello.epoch > attempts.epoch()) kind = detect::Break::kNewEpoch;
    attempts.Reopen();
    attempts.set_epoch(hello.epoch);
  }
  if (detectors.empty() || hello.model != spec) {
    SetSpec(hello.model, kind.value_or(detect::Break::kNewAttempt), out);
  } else if (kind) {
    Break(*kind, out);
  }
  attn_logit = hello.attn_logit;
  ranks = std::max(hello.world_size, 1u);
  if (hello.boundary > 0) attempts.RaiseNewestBoundary(hello.boundary - 1);
  TellPolicy(*out);
  policy.OnHello(hello, &out->policy);
  out->acknowledge_sequence = attempts.last_sequence();
  out->changed = true;
}

// Why a report of the current attempt cannot be taken; empty: it can.
std::string Run::State::WhyNot(const model::Report& report) const {
  const std::string what = "report " + Number(report.sequence) + " of run " + name + ": ";
  if (report.sequence == 0) return what + "sequence 0, wanted 1 or more";
  if (report.epoch < attempts.epoch())
    return what + "epoch " + Number(report.epoch) + " after epoch " + Number(attempts.epoch());
  const std::string shapes = model::CheckShapes(report, spec);
  return shapes.empty() ? "" : what + shapes;
}

void Run::State::On(const ReportEvent& event, const Stamp& now, RunOutput* out) {
  const model::Report& report = event.report;
  const AttemptBook::Speaker who = attempts.Who(event.attempt);
  if (who != AttemptBook::Speaker::kCurrent) {
    const bool stranger = who == AttemptBook::Speaker::kStranger;
    out->changed = !stranger && attempts.HearRival(event.attempt, now.mono_ms);
    out->status = stranger ? Stranger(event.attempt) : Superseded(event.attempt);
    return;
  }
  if (report.sequence > 0 && report.sequence <= attempts.last_sequence()) {  // Sent again after a reconnect.
    out->acknowledge_sequence = attempts.last_sequence();
    return;
  }
  if (const std::string why = WhyNot(report); !why.empty()) {
    out->status = Refused(why);
    return;
  }
  // A step that goes back or repeats is another history of the weights, whether or not the client said so.
  if (!after_break && (report.epoch > attempts.epoch() || report.step <= last.step))
    Break(detect::Break::kNewEpoch, out);
  after_break = false;
  attempts.set_epoch(report.epoch);
  attempts.TakeReport(report);
  // Reports may know better than the hello how maxima are made: a client learns it when attention first runs.
  if (report.attn_logit_kind != model::LogitKind::kUnknown) attn_logit.kind = report.attn_logit_kind;
  last = report;
  last_report_unix_ms = now.unix_ms;
  if (!attempts.ended()) TakeFound(silence.OnReport(report.step, now.mono_ms), out);
  for (const auto& detector : detectors) detector->Observe(report, &found);
  TakeFound(out);
  tally.TakeReport(report, spec, policy.tau());
  TellContest(now, out);
  TellPolicy(*out);
  AskPolicy(report, out);
  out->acknowledge_sequence = attempts.last_sequence();
  out->changed = true;
}

// What was found, and the episode as it was known before that. A finding of the policy's own comes back to it too.
void Run::State::TellPolicy(const RunOutput& out) {
  policy::EpisodeNow now;
  if (const std::optional<diagnose::Diagnosis>& newest = episodes.newest(); newest && !newest->closed)
    now = {.since = newest->first_step, .recommend = newest->recommend, .headline = newest->headline};
  policy.OnFindings(out.findings, now);
}

// While contested nothing counts as fresh evidence: the policy's mirror goes on, and nothing is ordered. What the
// policy says about stale evidence is then not true; the contest has been told instead.
void Run::State::AskPolicy(const model::Report& report, RunOutput* out) {
  if (!contested) return policy.OnReport(report, attempts.newest_boundary(), &out->policy);
  const size_t told = out->policy.decisions.size();
  policy.OnReport(report, report.boundary + kEvidenceBoundariesMax + 1, &out->policy);
  out->policy.decisions.resize(told);
}

void Run::State::TellContest(const Stamp& now, RunOutput* out) {
  if (contested == attempts.Contested(now.mono_ms)) return;
  contested = !contested;
  model::Decision decision;
  decision.step = last.step;
  decision.reason = contested ? "two attempts of this run both speak: orders go to neither"
                              : "the older attempt is silent again: orders may go out";
  out->policy.decisions.push_back(std::move(decision));
}

void Run::State::On(const AckEvent& event, const Stamp&, RunOutput* out) {
  switch (attempts.Who(event.attempt)) {
    case AttemptBook::Speaker::kStranger:
      out->status = Stranger(event.attempt);
      return;
    case AttemptBook::Speaker::kSuperseded:
      out->status = Superseded(event.attempt);
      return;
    case AttemptBook::Speaker::kCurrent:
      policy.OnAck(event.ack, &out->policy);
      out->changed = true;
      return;
  }
}

void Run::State::On(const ByeEvent& event, const Stamp& now, RunOutput* out) {
  switch (attempts.Who(event.attempt)) {
    case AttemptBook::Speaker::kStranger:
      out->status = Stranger(event.attempt);
      return;
    case AttemptBook::Speaker::kSuperseded:
      out->changed = attempts.DismissRival(event.attempt);
      return;
    case AttemptBook::Speaker::kCurrent:
      break;
  }
  if (attempts.ended()) return;
  attempts.End();
  TakeFound(silence.OnBye(now.mono_ms), out);
  policy.OnEnd(&out->policy);
  out->ended_attempt = event.attempt;
  out->ended_reason = event.reason.empty() ? "the job said good-bye" : event.reason;
  out->changed = true;
}

void Run::State::On(const TickEvent&, const Stamp& now, RunOutput* out) {
  std::optional<model::Finding> finding = silence.OnTick(now.mono_ms);
  out->changed = finding.has_value();  // The run is silent, whether or not that is said.
  TakeFound(std::move(finding), out);
}

void Run::State::On(const ModeEvent& event, const Stamp&, RunOutput* out) {
  policy.SetMode(event.mode, event.author, &out->policy);
  out->changed = true;
}

void Run::State::On(const ApproveEvent& event, const Stamp& now, RunOutput* out) {
  if (attempts.Contested(now.mono_ms)) {
    out->status = absl::FailedPreconditionError("two attempts of run " + name + " both speak: orders go to neither");
    return;
  }
  out->status = policy.Approve(event.id, event.author, event.reason, &out->policy);
  out->changed = out->status.ok();
}

void Run::State::On(const RejectEvent& event, const Stamp&, RunOutput* out) {
  out->status = policy.Reject(event.id, event.author, event.reason, &out->policy);
  out->changed = out->status.ok();
}

void Run::State::On(const ProposeEvent& event, const Stamp& now, RunOutput* out) {
  if (attempts.Contested(now.mono_ms)) {
    out->status = absl::FailedPreconditionError("two attempts of run " + name + " both speak: orders go to neither");
    return;
  }
  out->status = policy.Propose(event.proposal, &out->policy);
  out->changed = out->status.ok();
}

// Detectors take their thresholds at birth: new ones are made and given the old ones' state.
void Run::State::On(const OptionsEvent& event, const Stamp&, RunOutput* out) {
  base::ByteWriter saved_silence;
  base::SaveTo(&saved_silence, silence);
  options = event.options;
  silence = detect::Silence(options.detect.silence);
  base::ByteReader silence_in(saved_silence.bytes());
  base::LoadFrom(&silence_in, &silence);
  if (!SilenceVoice().enabled) findings.End("silence", last.step, &out->findings);
  auto made = attempts.any() ? detect::MakeDetectors(options.detect, spec) : decltype(detectors){};
  for (const auto& old : detectors) {
    base::ByteWriter saved;
    old->Save(&saved);
    const auto it = std::ranges::find(made, old->name(), [](const auto& each) { return each->name(); });
    base::ByteReader in(saved.bytes());
    // A window of another length cannot take the old one's values: the detector starts as new, and ends what was open.
    if (it == made.end() || !(*it)->Load(&in)) findings.End(old->name(), last.step, &out->findings);
  }
  detectors = std::move(made);
  TellPolicy(*out);
  policy.SetOptions(options.policy, &out->policy);
  out->changed = true;
}

void Run::State::SaveDetectors(base::ByteWriter* out) const {
  out->Put(static_cast<uint32_t>(detectors.size()));
  for (const auto& detector : detectors) {
    base::ByteWriter bytes;
    detector->Save(&bytes);
    out->PutString(detector->name());
    out->PutString(bytes.bytes());
  }
}

// By name, so that a version with one more detector, or with another format of one, keeps the others.
bool Run::State::LoadDetectors(base::ByteReader* in) {
  if (attempts.any()) detectors = detect::MakeDetectors(options.detect, spec);
  for (auto left = in->Get<uint32_t>(); left > 0 && in->ok(); --left) {
    const std::string detector_name = in->GetString();
    const std::string bytes = in->GetString();
    const auto it = std::ranges::find(detectors, detector_name, [](const auto& each) { return each->name(); });
    base::ByteReader saved(bytes);
    if (it == detectors.end() || !(*it)->Load(&saved)) findings.Forget(detector_name);
  }
  return in->ok();
}

Run::Run(std::string name, uint64_t number, const RunOptions& options)
    : state_(std::make_unique<State>(std::move(name), number, options)) {}
Run::~Run() = default;

void Run::Apply(const Event& event, RunOutput* out) {
  out->Clear();
  State& s = *state_;
  const Stamp now{std::max(event.at.mono_ms, s.last_mono_ms), event.at.unix_ms};
  std::visit([&](const auto& body) { s.On(body, now, out); }, event.body);
  if (!out->changed) return;
  s.last_mono_ms = now.mono_ms;
  const size_t found = out->findings.size();
  for (model::Finding& finding : out->policy.findings) s.findings.Take(std::move(finding), &out->findings);
  out->policy.findings.clear();
  if (out->findings.size() > found) s.TellPolicy(*out);
  s.episodes.Take(s.last.step, s.spec, &out->findings, &s.findings, &out->episodes);
  s.tally.TakeDecisions(out->policy.decisions);
  s.tally.TakeInterventions(out->policy.changed);
  if (s.attempts.Contested(now.mono_ms)) out->policy.orders.clear();
}

const std::string& Run::name() const { return state_->name; }
uint64_t Run::number() const { return state_->number; }
const RunOptions& Run::options() const { return state_->options; }
const model::AttemptId& Run::attempt() const { return state_->attempts.current(); }
uint64_t Run::last_sequence() const { return state_->attempts.last_sequence(); }
model::Mode Run::mode() const { return state_->policy.mode(); }
int64_t Run::last_mono_ms() const { return state_->last_mono_ms; }

RunState Run::View() const {
  const State& s = *state_;
  RunState view;
  view.run = s.name;
  view.attempt = s.attempts.current();
  view.attempts = s.attempts.attempts();
  view.life = s.attempts.ended() ? RunLife::kEnded : s.silence.silent() ? RunLife::kSilent : RunLife::kLive;
  view.mode = s.policy.mode();
  view.step = s.last.step;
  view.ranks = s.ranks;
  view.last_report_unix_ms = s.last_report_unix_ms;
  view.spec = s.spec;
  view.attn_logit = s.attn_logit;
  view.allow = s.policy.allow();
  view.tau = s.policy.tau();
  view.last = s.last;
  s.tally.Show(&view);
  const model::LedgerDelta ledger = s.policy.ledger().Sparse();
  const auto most = std::ranges::max_element(ledger.ticks);
  if (most != ledger.ticks.end()) view.qk_clip_scale_min = remedy::ExpMinus(*most);
  view.open_findings = s.findings.Open();
  view.episode = s.episodes.newest();
  view.open_interventions = s.policy.Open();
  view.interventions_pending = s.policy.pending();
  for (const auto& detector : s.detectors)
    if (detector->name() == "headroom") view.headroom_steps = detector->StepsLeft().value_or(view.headroom_steps);
  view.reports_total = s.attempts.reports();
  view.reports_dropped_total = s.attempts.dropped();
  view.findings_total = s.findings.Totals();
  return view;
}

std::string Run::Save() const {
  State& s = *state_;
  base::ByteWriter out;
  out.Put(kVersion);
  out.PutString(s.name);
  out.Put(s.number);
  base::SaveTo(&out, s.options);
  base::SaveTo(&out, s);
  s.SaveDetectors(&out);
  s.policy.Save(&out);
  return out.Take();
}

bool Run::Load(std::string_view bytes) {
  base::ByteReader in(bytes);
  const auto version = in.Get<uint32_t>();
  std::string name = in.GetString();
  const auto number = in.Get<uint64_t>();
  RunOptions options;
  const bool head = version == kVersion && base::LoadFrom(&in, &options);
  if (head) {
    auto loaded = std::make_unique<State>(std::move(name), number, options);
    if (base::LoadFrom(&in, loaded.get()) && loaded->LoadDetectors(&in) && loaded->policy.Load(&in) && in.AtEnd()) {
      state_ = std::move(loaded);
      return true;
    }
  }
  state_ = std::make_unique<State>(state_->name, state_->number, state_->options);
  return false;
}

}  // namespace gyrostat::engine
