#include "detect/spike_level.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace gyrostat::detect {
namespace {

// Values enter the level no further above it than this many deviations: methods of robust statistics call it
// winsorising.
constexpr double kWinsorSigmas = 3;
// A loss is judged as it is from this share of values that are not positive on. One bad value must not switch.
constexpr double kShareNotPositive = 1.0 / 16;
constexpr double kForget = 1.0 / 64;
constexpr double kGradNormAbsurd = 1e12;
// One value more tells no level.
constexpr uint32_t kFirstReportsMin = 2;
// From so many values on their MAD counts among the first reports too, for so much.
constexpr uint32_t kFirstScaleMin = 8;
constexpr double kFirstSigmas = 3;

// How many deviations (1.4826 MAD) above the median of n Gaussian values the next one is with p = 1e-4.
struct MadLimit {
  uint32_t count;
  double deviations;
};
constexpr std::array kMadLimits = {MadLimit{2, 3800}, MadLimit{3, 5300},  MadLimit{4, 115},   MadLimit{6, 33},
                                   MadLimit{8, 17.7}, MadLimit{10, 12.7}, MadLimit{12, 10.2}, MadLimit{16, 7.8}};

// Of the last entry that has no more values: rather too wide than too narrow.
double CertainDeviations(uint32_t count) {
  double deviations = std::numeric_limits<double>::infinity();
  for (const MadLimit& limit : kMadLimits)
    if (count >= limit.count) deviations = limit.deviations;
  return deviations;
}

stats::RobustBaselineOptions LevelOptions(const SpikeOptions& options) {
  // Winsorised by LearnIn, which knows the scale.
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
  options.sigma_min = 0.05;   // Norms vary by more than 5 % everywhere; 8 of it are a factor of 1.5.
  options.gross_ratio = 8;    // 62 healthy runs: the largest single-step ratio is 5.8.
  return options;
}

double SpikeLimits::Judged(double value) const {
  if (!log) return value;
  return value > 0 ? std::log(value) : -std::numeric_limits<double>::infinity();
}

double SpikeLimits::ToUnit(double judged) const { return log ? std::exp(judged) : judged; }

SpikeLevel::Domain::Domain(const SpikeOptions& options) : level(LevelOptions(options)), scale(ScaleOptions(options)) {}

// The short median lags behind a trend, and the usual distance from it tells by how much. A rise is made up for. A
// fall is not: it may end at any step, and what was only expected to fall on would look like a spike then.
double SpikeLevel::Domain::Expected() const { return level.median() + std::max(0.0, scale.median()); }

SpikeLevel::SpikeLevel(const SpikeOptions& options) : options_(options), log_(options), linear_(options) {}

// A gradient norm that is not positive was not measured.
bool SpikeLevel::JudgesLog() const {
  return options_.signal == model::Signal::kGradNorm || share_not_positive_ < kShareNotPositive;
}

std::optional<SpikeLimits> SpikeLevel::LimitsFor(double value) const {
  if (options_.signal == model::Signal::kGradNorm && value >= kGradNormAbsurd) {
    const double limit = std::log(kGradNormAbsurd);
    return SpikeLimits{.level = limit, .enter = limit * (1 - 1e-12), .exit = limit, .certain = limit,
                       .basis = SpikeLimits::Basis::kAbsolute};
  }
  const bool log = JudgesLog();
  const Domain& domain = log ? log_ : linear_;
  if (domain.known()) return ByScale(domain, log);
  if (!log) return std::nullopt;
  if (old_) return ByOldScale();
  if (log_.level.count() >= kFirstReportsMin) return ByFirstReports();
  return std::nullopt;
}

SpikeLimits SpikeLevel::ByScale(const Domain& domain, bool log) const {
  const uint32_t known = domain.scale.count();
  const double level = domain.Expected();
  const double sigma = std::max(domain.scale.sigma(), options_.sigma_min * (log ? 1 : std::fabs(level)));
  const double enter = level + stats::SmallSampleLimit(options_.enter_sigmas, known) * sigma;
  const double exit = level + stats::SmallSampleLimit(options_.exit_sigmas, known) * sigma;
  return {.level = level, .enter = enter, .exit = std::min(exit, enter), .certain = enter, .sigma = sigma, .log = log};
}

// The noise may be another after a restart: a spike must be gross too.
SpikeLimits SpikeLevel::ByOldScale() const {
  SpikeLimits limits = *old_;
  limits.basis = SpikeLimits::Basis::kOldScale;
  if (old_trusted_) return limits;
  limits.enter = std::max(limits.enter, limits.level + std::log(options_.gross_ratio));
  limits.exit = std::max(limits.exit, limits.level + std::log((1 + options_.gross_ratio) / 2));
  limits.certain = limits.enter;
  return limits;
}

SpikeLimits SpikeLevel::ByFirstReports() const {
  const stats::RobustBaseline& values = log_.level;
  const double level = values.median(), sigma = values.sigma(), ratio = std::log(options_.gross_ratio);
  const double wide = values.count() < kFirstScaleMin ? 0 : kFirstSigmas * sigma;
  const double enter = std::max({level + ratio, level + wide, values.highest()});
  // Back where it has been before: the level of so few may be a low one.
  const double exit = std::max(level + std::log((1 + options_.gross_ratio) / 2), values.highest());
  SpikeLimits limits{.level = level, .enter = enter, .exit = std::min(exit, enter), .sigma = sigma,
                     .basis = SpikeLimits::Basis::kFirstReports};
  limits.certain = std::max(enter, level + CertainDeviations(values.count()) * sigma);
  return limits;
}

void SpikeLevel::Learn(double value) {
  if (options_.signal == model::Signal::kLoss) {
    share_not_positive_ += kForget * ((value > 0 ? 0 : 1) - share_not_positive_);
    LearnIn(value, false, &linear_);
  }
  if (value > 0) LearnIn(std::log(value), true, &log_);
  if (log_.known()) old_.reset();
}

void SpikeLevel::LearnIn(double judged, bool log, Domain* domain) {
  if (domain->level.count() == options_.level_steps) {
    domain->scale.Observe(judged - domain->level.median());
    if (domain->known()) {
      const SpikeLimits limits = ByScale(*domain, log);
      if (limits.sigma > 0) judged = std::min(judged, limits.level + kWinsorSigmas * limits.sigma);
    }
  }
  domain->level.Observe(judged);
}

void SpikeLevel::Relearn() {
  if (log_.known()) old_ = ByScale(log_, true);
  old_trusted_ = false;
  for (Domain* domain : {&log_, &linear_}) {
    domain->level.Clear();
    domain->scale.Clear();
  }
}

void SpikeLevel::Forget() {
  Relearn();
  old_.reset();
}

}  // namespace gyrostat::detect
