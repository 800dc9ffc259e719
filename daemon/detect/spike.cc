#include "detect/spike.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

constexpr uint8_t kStateVersion = 2;
// Values enter the level no further above it than this many deviations: methods of robust statistics call it
// winsorising.
constexpr double kWinsorSigmas = 3;

stats::RobustBaselineOptions LevelOptions(const SpikeOptions& options) {
  // Winsorised by Learn, which knows the scale.
  return {.window = options.level_steps, .winsor_mads = 0, .sigma_min = 0};
}

stats::RobustBaselineOptions ScaleOptions(const SpikeOptions& options) {
  return {.window = options.window_steps, .winsor_mads = kWinsorSigmas, .sigma_min = 0};
}

}  // namespace

SpikeOptions LossSpikeDefaults() {
  SpikeOptions options;
  options.signal = model::Signal::kLoss;
  options.sigma_min = 0.005;  // A quarter of the batch noise of a large run: 8 of it are 4 % of the loss.
  options.gross_ratio = 2;    // 62 healthy runs: the largest single-step ratio is 1.63.
  return options;
}

SpikeOptions GradSpikeDefaults() {
  SpikeOptions options;
  options.signal = model::Signal::kGradNorm;
  options.log_domain = true;  // Gradient norms are skewed: their tail is no spike.
  options.sigma_min = 0.05;   // Norms vary by more than 5 % everywhere; 8 of it are a factor of 1.5.
  options.gross_ratio = 8;    // 62 healthy runs: the largest single-step ratio is 5.8.
  return options;
}

Spike::State::State(const SpikeOptions& options) : level(LevelOptions(options)), scale(ScaleOptions(options)) {}

Spike::Spike(const SpikeOptions& options) : options_(options), state_(options) {}

double Spike::ToUnit(double judged) const { return options_.log_domain ? std::exp(judged) : judged; }

double Spike::Ratio(double value, double level) const { return level > 0 ? value / level : 0; }

// The short median lags behind a trend, and the usual distance from it tells by how much. A rise is made up for. A
// fall is not: it may end at any step, and what was only expected to fall on would look like a spike then.
double Spike::Expected() const { return state_.level.median() + std::max(0.0, state_.scale.median()); }

// Where `ratio` times the level lies in the domain of judging; infinite where a ratio means nothing.
double Spike::AtRatio(double level, double ratio) const {
  if (options_.log_domain) return level + std::log(ratio);
  return level > 0 ? level * ratio : std::numeric_limits<double>::infinity();
}

std::optional<Spike::Limits> Spike::LimitsNow() const {
  const uint32_t known = state_.scale.count();
  if (known >= stats::kBaselineCountMin) {
    const double level = Expected();
    const double floor = options_.sigma_min * (options_.log_domain ? 1 : std::fabs(level));
    const double sigma = std::max(state_.scale.sigma(), floor);
    const double enter = std::min(level + stats::SmallSampleLimit(options_.enter_sigmas, known) * sigma,
                                  AtRatio(level, options_.gross_ratio));
    const double exit = level + stats::SmallSampleLimit(options_.exit_sigmas, known) * sigma;
    return Limits{level, enter, std::min(exit, enter), sigma > 0 ? 1 / sigma : 0};
  }
  // After a restart there is no scale yet, but the level of before still tells what is gross.
  if (!state_.has_old_level) return std::nullopt;
  const double enter = AtRatio(state_.old_level, options_.gross_ratio);
  return Limits{state_.old_level, enter, AtRatio(state_.old_level, (1 + options_.gross_ratio) / 2), 0};
}

void Spike::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const bool jumped = state_.conditions.Observe(report);
  if (jumped && !state_.open) Relearn();  // Loss and norm find another level; the old one still shows a gross jump.
  if (!report.Has(options_.signal)) return;
  const double value = report.Scalar(options_.signal);
  // DeepSpeed reports -1 for a norm it did not measure; a norm of 0 has no logarithm and is no spike.
  if (options_.log_domain && value <= 0) return;
  if (!std::isfinite(value)) {  // `nonfinite` speaks of it. It heals nothing either.
    if (state_.open) Continue(report.step, value, value, out);
    return;
  }
  const double judged = options_.log_domain ? std::log(value) : value;
  if (state_.open) {
    Continue(report.step, value, judged, out);
    return;
  }
  const std::optional<Limits> limits = LimitsNow();
  if (limits && judged > limits->enter)
    Begin(report.step, value, judged, *limits, out);
  else
    Learn(judged);
}

void Spike::Learn(double judged) {
  if (state_.level.count() == options_.level_steps) {
    const double level = state_.level.median();
    state_.scale.Observe(judged - level);
    if (const std::optional<Limits> limits = LimitsNow(); limits && limits->sigmas_per_unit > 0)
      judged = std::min(judged, limits->level + kWinsorSigmas / limits->sigmas_per_unit);
    if (state_.scale.count() >= stats::kBaselineCountMin) state_.has_old_level = false;
  }
  state_.level.Observe(judged);
}

void Spike::Begin(model::Step step, double value, double judged, const Limits& limits,
                  std::vector<model::Finding>* out) {
  Episode& episode = state_.open.emplace();
  episode.level = limits.level;
  episode.enter = limits.enter;
  episode.exit = limits.exit;
  episode.elapsed = episode.records = 1;
  episode.last_bad = step;
  episode.peak = value;
  model::Finding& finding = episode.finding;
  finding.key = state_.next_key++;
  finding.detector = name();
  finding.signal = options_.signal;
  finding.step_begin = finding.step_detected = step;
  finding.value = value;
  finding.expected = ToUnit(limits.level);
  const std::string signal(model::SignalName(options_.signal));
  const double ratio = Ratio(value, finding.expected);
  if (ratio >= options_.gross_ratio) finding.severity = model::Severity::kWarning;
  finding.message = Sentence("%s %.4g at step %lld, where %.4g was usual", signal.c_str(), value,
                             Printable(step), finding.expected);
  if (ratio > 0) finding.message += Sentence(": %.3g times as much", ratio);
  if (limits.sigmas_per_unit > 0)
    finding.message += Sentence(", %.3g robust deviations", (judged - limits.level) * limits.sigmas_per_unit);
  else
    finding.message += ", judged by the level before the last restart";
  finding.message += ".";
  out->push_back(finding);
}

void Spike::Continue(model::Step step, double value, double judged, std::vector<model::Finding>* out) {
  Episode& episode = *state_.open;
  ++episode.elapsed;
  if (std::isfinite(value)) {
    if (judged > episode.enter) ++episode.records;
    if (judged > episode.exit) {
      episode.quiet = 0;
      episode.last_bad = step;
      episode.peak = std::max(episode.peak, value);
    } else if (++episode.quiet >= options_.heal_records) {
      const std::string signal(model::SignalName(options_.signal)), records = Counted(episode.records, "record");
      End(true, Sentence("%s is back at %.4g after %s above its limit; the peak was %.4g where %.4g was usual.",
                         signal.c_str(), value, records.c_str(), episode.peak, episode.finding.expected), out);
      return;
    }
  }
  Escalate(out);
  if (episode.elapsed >= options_.abandon_records) {
    const std::string signal(model::SignalName(options_.signal));
    End(false, Sentence("%s did not come back in %u records; its new level is taken as the usual one from here on.",
                        signal.c_str(), episode.elapsed), out);
    Relearn();
    state_.has_old_level = false;
  }
}

void Spike::Escalate(std::vector<model::Finding>* out) {
  Episode& episode = *state_.open;
  model::Finding& finding = episode.finding;
  const std::string signal(model::SignalName(options_.signal));
  model::Severity severity = finding.severity;
  std::string message;
  if (episode.elapsed >= options_.unhealed_critical_records) {
    severity = model::Severity::kCritical;
    message = Sentence("%s has not come back for %u records", signal.c_str(), episode.elapsed);
  } else if (episode.elapsed >= options_.unhealed_warning_records) {
    severity = std::max(severity, model::Severity::kWarning);
    message = Sentence("%s has not come back for %u records", signal.c_str(), episode.elapsed);
  } else if (episode.records >= options_.lasting_records) {
    severity = std::max(severity, model::Severity::kWarning);
    message = Sentence("%s has been above its limit in %u records", signal.c_str(), episode.records);
  } else if (const double ratio = Ratio(episode.peak, finding.expected); ratio >= options_.gross_ratio) {
    severity = std::max(severity, model::Severity::kWarning);
    message = Sentence("%s reached %.3g times its usual level", signal.c_str(), ratio);
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

void Spike::Relearn() {
  if (state_.scale.count() >= stats::kBaselineCountMin) {
    state_.old_level = Expected();
    state_.has_old_level = true;
  }
  state_.level.Clear();
  state_.scale.Clear();
}

void Spike::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  // An intervention may be what heals an open spike: it goes on being judged by the level before it.
  if (state_.open && kind != Break::kIntervention)
    End(std::nullopt, EndedBy(kind, step), out);
  if (kind != Break::kIntervention) state_.conditions.Clear();
  Relearn();
}

void Spike::Save(base::ByteWriter* out) const { SaveState(kStateVersion, state_, out); }

bool Spike::Load(base::ByteReader* in) { return LoadState(kStateVersion, State(options_), in, &state_); }

}  // namespace gyrostat::detect
