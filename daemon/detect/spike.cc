#include "detect/spike.h"

#include <algorithm>
#include <cmath>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

constexpr uint8_t kStateVersion = 3;
// A spike among the first reports that lasts longer is judged by what was learnt meanwhile.
constexpr uint32_t kRelearntRecords = 8;

// Value over level in the signal's unit; 0 where that means nothing.
double RatioOf(double value, double level) { return level > 0 ? value / level : 0; }

const char* Addition(SpikeLimits::Basis basis) {
  switch (basis) {
    case SpikeLimits::Basis::kOldScale: return ", judged by the level before the last restart";
    case SpikeLimits::Basis::kFirstReports: return ", among the first reports";
    case SpikeLimits::Basis::kAbsolute: return ": no training has such a norm";
    case SpikeLimits::Basis::kScale: return "";
  }
  return "";
}

}  // namespace

Spike::Spike(const SpikeOptions& options) : options_(options), state_(options) {}

void Spike::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const bool jumped = state_.conditions.Observe(report);
  if (jumped && !state_.open) state_.level.Relearn();  // Another level; the old one still shows a gross jump.
  if (state_.conditions.undone()) state_.level.TrustOld();
  if (!report.Has(options_.signal)) return;
  const double value = report.Scalar(options_.signal);
  // DeepSpeed reports -1 for a norm it did not measure; a norm of 0 has no logarithm and is no spike.
  if (options_.signal == model::Signal::kGradNorm && value <= 0) return;
  if (state_.open) {
    Continue(report.step, value, out);  // NaN and Inf too: they heal nothing.
    return;
  }
  if (!std::isfinite(value)) return;  // `nonfinite` speaks of it.
  const std::optional<SpikeLimits> limits = state_.level.LimitsFor(value);
  const bool bursts = limits && Bursts(report.step, value, *limits);
  if (bursts || (limits && limits->Judged(value) > limits->enter))
    Begin(report.step, value, *limits, out);
  else
    state_.level.Learn(value);
}

bool Spike::Bursts(model::Step step, double value, const SpikeLimits& limits) {
  const bool scaled = limits.basis == SpikeLimits::Basis::kScale || limits.basis == SpikeLimits::Basis::kOldScale;
  const bool high =
      scaled && options_.signal == model::Signal::kGradNorm && limits.Judged(value) > limits.exit;
  if (!high) {
    state_.high = 0;
    return false;
  }
  if (state_.high++ == 0) state_.high_since = step;
  return state_.high >= options_.lasting_records;
}

void Spike::Begin(model::Step step, double value, const SpikeLimits& limits, std::vector<model::Finding>* out) {
  Episode& episode = state_.open.emplace();
  episode.limits = limits;
  const bool bursts = state_.high >= options_.lasting_records;
  episode.elapsed = episode.records = episode.in_a_row = bursts ? state_.high : 1;
  episode.last_bad = step;
  episode.peak = value;
  model::Finding& finding = episode.finding;
  finding.key = state_.next_key++;
  finding.detector = name();
  finding.signal = options_.signal;
  finding.step_begin = bursts ? state_.high_since : step;
  finding.step_detected = step;
  state_.high = 0;
  finding.value = value;
  finding.expected = limits.Expected();
  if (bursts || Gross()) finding.severity = model::Severity::kWarning;
  const std::string signal(model::SignalName(options_.signal));
  finding.message = Sentence("%s %.4g at step %lld", signal.c_str(), value, Printable(step));
  if (limits.basis != SpikeLimits::Basis::kAbsolute) {
    finding.message += Sentence(", where %.4g was usual", finding.expected);
    if (const double ratio = RatioOf(value, finding.expected); ratio > 0)
      finding.message += Sentence(": %.3g times as much", ratio);
    if (limits.sigma > 0)
      finding.message += Sentence(", %.3g robust deviations", (limits.Judged(value) - limits.level) / limits.sigma);
  }
  if (bursts) finding.message += Sentence(", the last of %u in a row", episode.records);
  finding.message += Addition(limits.basis);
  finding.message += ".";
  out->push_back(finding);
}

bool Spike::Gross() const {
  const Episode& episode = *state_.open;
  const SpikeLimits& limits = episode.limits;
  if (limits.basis == SpikeLimits::Basis::kAbsolute) return true;
  return RatioOf(episode.peak, limits.Expected()) >= options_.gross_ratio &&
         limits.Judged(episode.peak) > limits.certain;
}

void Spike::Continue(model::Step step, double value, std::vector<model::Finding>* out) {
  Episode& episode = *state_.open;
  ++episode.elapsed;
  if (std::isfinite(value)) {
    const double judged = episode.limits.Judged(value);
    double exit = episode.limits.exit;
    if (episode.limits.basis == SpikeLimits::Basis::kFirstReports) {
      // The level of a few values may have been a low one: it goes on being learnt, and counts in the end.
      state_.level.Learn(value);
      const std::optional<SpikeLimits> now = state_.level.LimitsFor(value);
      if (now && episode.elapsed > kRelearntRecords) exit = std::max(exit, now->exit);
    }
    episode.in_a_row = judged > episode.limits.enter ? episode.in_a_row + 1 : 0;
    if (episode.in_a_row > 0) ++episode.records;
    if (judged > exit) {
      episode.quiet = 0;
      episode.last_bad = step;
      episode.peak = std::max(episode.peak, value);
    } else if (++episode.quiet >= options_.heal_records) {
      const std::string signal(model::SignalName(options_.signal)), records = Counted(episode.records, "record");
      End(judged <= episode.limits.exit,
          Sentence("%s is back at %.4g after %s above its limit; the peak was %.4g where %.4g was usual.",
                   signal.c_str(), value, records.c_str(), episode.peak, episode.finding.expected), out);
      return;
    }
  }
  Escalate(out);
  if (episode.elapsed >= options_.abandon_records) {
    const std::string signal(model::SignalName(options_.signal));
    End(false, Sentence("%s did not come back in %u records; its new level is taken as the usual one from here on.",
                        signal.c_str(), episode.elapsed), out);
    state_.level.Forget();
  }
}

void Spike::Escalate(std::vector<model::Finding>* out) {
  Episode& episode = *state_.open;
  model::Finding& finding = episode.finding;
  const std::string signal(model::SignalName(options_.signal));
  model::Severity severity = finding.severity;
  std::string message;
  // Of the first reports one more, and in a row: their level is a guess.
  const bool first = episode.limits.basis == SpikeLimits::Basis::kFirstReports;
  const uint32_t lasting = first ? episode.in_a_row - std::min(episode.in_a_row, 1u) : episode.records;
  if (episode.elapsed >= options_.unhealed_critical_records) {
    severity = model::Severity::kCritical;
    message = Sentence("%s has not come back for %u records", signal.c_str(), episode.elapsed);
  } else if (episode.elapsed >= options_.unhealed_warning_records) {
    severity = std::max(severity, model::Severity::kWarning);
    message = Sentence("%s has not come back for %u records", signal.c_str(), episode.elapsed);
  } else if (lasting >= options_.lasting_records) {
    severity = std::max(severity, model::Severity::kWarning);
    message = Sentence("%s has been above its limit in %u records", signal.c_str(), episode.records);
  } else if (Gross()) {
    severity = std::max(severity, model::Severity::kWarning);
    message = Sentence("%s reached %.3g times its usual level", signal.c_str(),
                       RatioOf(episode.peak, finding.expected));
  }
  if (severity <= finding.severity) return;
  finding.severity = severity;
  finding.value = episode.peak;
  finding.message = message + Sentence(" since step %lld; its peak is %.4g where %.4g was usual.",
                                       Printable(finding.step_begin), episode.peak, finding.expected);
  out->push_back(finding);
}

void Spike::End(std::optional<bool> healed, const std::string& message, std::vector<model::Finding>* out) {
  model::Finding& finding = state_.open->finding;
  finding.step_end = state_.open->last_bad;
  finding.healed = healed;
  finding.value = state_.open->peak;
  finding.message = message;
  out->push_back(std::move(finding));
  state_.open.reset();
}

void Spike::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  // An intervention may be what heals an open spike: it goes on being judged by the level before it.
  if (state_.open && kind != Break::kIntervention)
    End(std::nullopt, EndedBy(kind, step), out);
  if (kind != Break::kIntervention) state_.conditions.Clear();
  state_.level.Relearn();
  state_.high = 0;
}

void Spike::Save(base::ByteWriter* out) const { SaveState(kStateVersion, state_, out); }

bool Spike::Load(base::ByteReader* in) { return LoadState(kStateVersion, State(options_), in, &state_); }

}  // namespace gyrostat::detect
