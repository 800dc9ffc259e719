#include "detect/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr uint8_t kStateVersion = 2;
constexpr size_t kRecentMax = 128;  // A jump must be in sight when it has lasted for shift_info_records.
// A jump is told from the medians of so many values on either side.
constexpr size_t kSide = 8;
// The noise is at least this share of the loss: logs are rounded.
constexpr double kNoiseShare = 0.002;
// One record's evidence is at most so many limits: a single huge median must not decide alone.
constexpr double kEvidencePerRecordMax = 4;
// A shift that climbs to so many times what the jump made of it is a climb after all.
constexpr double kShiftClimbs = 1.5;
// Worse than at the start: so many times the first loss, in so many losses in a row, begun within so many.
constexpr double kStartRatio = 1.3;
constexpr Sustained::Limits kStartLimits = {.hold = 4, .quiet = 3};
constexpr uint32_t kStartReports = 32;

double MedianOf(const double* first) {
  std::array<double, kSide> values;
  std::copy(first, first + kSide, values.begin());
  std::sort(values.begin(), values.end());
  return 0.5 * (values[kSide / 2 - 1] + values[kSide / 2]);
}

double Share(double deviations, double limit, double excess, double excess_min) {
  if (!(excess >= excess_min)) return 0;
  return deviations / limit;
}

}  // namespace

Divergence::State::State(const DivergenceOptions& options)
    : brief({.window = options.short_steps, .noise_share = kNoiseShare}),
      slow({.window = options.long_steps, .noise_share = kNoiseShare}) {
  recent.reserve(kRecentMax);
  steps.reserve(kRecentMax);
}

Divergence::Divergence(const DivergenceOptions& options) : options_(options), state_(options) {}

double Divergence::OverShort() const {
  const stats::Climb& climb = state_.brief;
  return Share(climb.Deviations(), options_.short_deviations, climb.excess(),
               std::max(options_.excess_min, options_.short_share * std::fabs(climb.lowest())));
}

double Divergence::OverLong() const {
  const stats::Climb& climb = state_.slow;
  return Share(climb.Deviations(), options_.long_deviations, climb.excess(),
               std::max(options_.excess_min, options_.long_share * std::fabs(climb.lowest())));
}

// Of the level that is further over its own limit.
double Divergence::Excess() const {
  return OverShort() > OverLong() || !state_.slow.known() ? state_.brief.excess() : state_.slow.excess();
}

double Divergence::Lowest() const { return state_.slow.known() ? state_.slow.lowest() : state_.brief.lowest(); }

// The index in `recent` where one jump makes up most of the excess: what was before it stood near the best level.
// Nothing where the level rather climbed.
std::optional<size_t> Divergence::Jump(double* excess_after) const {
  const double excess = Excess(), share = options_.shift_share * excess;
  std::optional<size_t> at;
  double largest = 0;
  for (size_t i = kSide; i + kSide <= state_.recent.size(); ++i) {
    const double before = MedianOf(&state_.recent[i - kSide]);
    const double rise = MedianOf(&state_.recent[i]) - before;
    if (rise < std::max(share, largest) || before - Lowest() > excess - share) continue;
    largest = rise;
    at = i;
    *excess_after = before + rise - Lowest();
  }
  return at;
}

void Divergence::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const bool jumped = state_.conditions.Observe(report);
  if (jumped && !state_.condition.open()) Relearn();
  if (!report.Has(Signal::kLoss)) return;
  const double loss = report.Scalar(Signal::kLoss);
  if (!std::isfinite(loss)) return;  // `nonfinite` speaks of it.
  ObserveStart(report.step, loss, out);
  Learn(report.step, loss);
  const double over = std::max(OverShort(), OverLong());
  state_.hits = over >= 1 ? Saturating(state_.hits) : 0;
  if (state_.condition.open())
    Continue(report.step, over, out);
  else if (state_.hits >= options_.hold_records)
    Begin(report.step, loss, out);
}

void Divergence::ObserveStart(model::Step step, double loss, std::vector<model::Finding>* out) {
  state_.first_reports = Saturating(state_.first_reports);
  if (state_.first_reports == 1) state_.first_loss = loss;
  if (state_.first_loss <= 0 || (!state_.start.open() && state_.first_reports > kStartReports)) return;
  const bool worse = loss >= kStartRatio * state_.first_loss;
  state_.start.Observe(
      worse ? std::optional(Severity::kInfo) : std::nullopt, kStartLimits, {name(), step, &state_.next_key, out},
      [&](model::Finding* finding) {
        finding->signal = Signal::kLoss;
        finding->value = loss;
        finding->expected = state_.first_loss;
        finding->message = Sentence("The loss has risen from its first value %.4g to %.4g at step %lld.",
                                    state_.first_loss, loss, Printable(step));
      },
      [&] {
        return Sentence("The loss is below %.3g times its first value %.4g again.", kStartRatio, state_.first_loss);
      });
}

void Divergence::Learn(model::Step step, double loss) {
  state_.brief.Observe(loss);
  state_.slow.Observe(loss);
  if ((state_.slow.known() ? state_.slow : state_.brief).excess() <= 0) state_.lowest_step = step;
  if (state_.recent.size() == kRecentMax) {
    state_.recent.erase(state_.recent.begin());
    state_.steps.erase(state_.steps.begin());
  }
  state_.recent.push_back(loss);
  state_.steps.push_back(step);
}

void Divergence::Begin(model::Step step, double loss, std::vector<model::Finding>* out) {
  double after = 0;
  const std::optional<size_t> jump = Jump(&after);
  if (jump && state_.hits < options_.shift_info_records) return;
  state_.shift = jump.has_value();
  state_.peak_excess = Excess();
  state_.shift_excess = std::max(after, state_.peak_excess);
  state_.evidence = 0;
  state_.elapsed = state_.hits;
  state_.quiet = 0;
  state_.last_over = step;
  // A climb began when the level was last at its lowest, but not before what is remembered.
  const model::Step begin = jump ? state_.steps[*jump] : std::max(state_.lowest_step, state_.steps.front());
  model::Finding& finding = state_.condition.Open(name(), Signal::kLoss, begin, step, &state_.next_key);
  finding.severity = state_.shift ? Severity::kInfo : Severity::kWarning;
  finding.value = Lowest() + Excess();
  finding.expected = Lowest();
  if (!state_.shift) finding.recommend = model::InterventionKind::kLrScale;
  finding.message = Sentence(
      "The loss %s %.4g (%.4g at step %lld) from its best level %.4g, since step %lld.",
      state_.shift ? "has jumped to" : "has climbed to", finding.value, loss, Printable(step), finding.expected,
      Printable(begin));
  if (state_.shift) finding.message += " New data does that, and so does a lost state.";
  state_.condition.Say(out);
}

void Divergence::Continue(model::Step step, double over, std::vector<model::Finding>* out) {
  state_.elapsed = Saturating(state_.elapsed);
  state_.peak_excess = std::max(state_.peak_excess, Excess());
  if (over >= 0.5) {
    state_.quiet = 0;
    state_.last_over = step;
  } else if (++state_.quiet >= options_.heal_records) {
    state_.condition.finding().value = Lowest() + state_.peak_excess;
    state_.condition.End(state_.last_over, true,
                         Sentence("The loss is back near its best level %.4g; it had climbed by %.3g.", Lowest(),
                                  state_.peak_excess), out);
    return;
  }
  if (over >= 1) state_.evidence += std::min(over, kEvidencePerRecordMax);
  Escalate(over, out);
  if (!state_.shift || state_.elapsed < options_.shift_abandon_records) return;
  state_.condition.End(step, false,
                       Sentence("The loss did not come back in %u records; its new level is taken as the usual one.",
                                state_.elapsed), out);
  Relearn();
}

void Divergence::Escalate(double over, std::vector<model::Finding>* out) {
  const model::Finding& finding = state_.condition.finding();
  const bool climbs = !state_.shift || Excess() >= kShiftClimbs * state_.shift_excess;
  const std::string since = Sentence("%.4g above its best level %.4g, since step %lld", Excess(), Lowest(),
                                     Printable(finding.step_begin));
  if (climbs && over >= 1 && state_.evidence >= options_.critical_evidence) {
    state_.shift = false;
    Raise(Severity::kCritical, "The loss diverges: it is " + since + ", and does not return.", out);
  } else if (state_.shift && state_.elapsed >= options_.shift_warning_records) {
    Raise(Severity::kWarning, "The loss has not come back in " + Counted(state_.elapsed, "record") + ": it is " +
                              since + ".", out);
  }
}

void Divergence::Raise(Severity severity, const std::string& message, std::vector<model::Finding>* out) {
  model::Finding& finding = state_.condition.finding();
  if (severity <= finding.severity) return;
  finding.severity = severity;
  finding.value = Lowest() + Excess();
  finding.message = message;
  // Lower rates no longer help a run that has left (experiments §4, §5); the weights of before do.
  if (severity == Severity::kCritical) finding.recommend = model::InterventionKind::kRollback;
  state_.condition.Say(out);
}

void Divergence::Relearn() {
  state_.brief.Clear();
  state_.slow.Clear();
  state_.recent.clear();
  state_.steps.clear();
  state_.hits = 0;
}

void Divergence::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind != Break::kIntervention && state_.first_reports > 0) {
    state_.start.Break(EndedBy(kind, step), out);
    state_.first_loss = 0;
  }
  if (kind == Break::kIntervention) {
    // It may be what brings an open climb back: that goes on being judged by the level before it.
    if (!state_.condition.open()) Relearn();
    return;
  }
  if (state_.condition.open()) state_.condition.End(state_.last_over, std::nullopt, EndedBy(kind, step), out);
  state_.conditions.Clear();
  Relearn();
}

void Divergence::Save(base::ByteWriter* out) const { SaveState(kStateVersion, state_, out); }

bool Divergence::Load(base::ByteReader* in) { return LoadState(kStateVersion, State(options_), in, &state_); }

}  // namespace gyrostat::detect
