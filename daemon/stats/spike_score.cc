#include "stats/spike_score.h"

#include <cmath>

namespace gyrostat::stats {

SpikeScoreOptions OlmoCoreOptions() {
  SpikeScoreOptions options;
  options.window = 128;
  options.threshold_stds = 6;
  options.upper_only = true;
  options.horizon = 10000;
  return options;
}

SpikeScore::SpikeScore(SpikeScoreOptions options) : options_(options), suffix_(options.window) {
  values_.reserve(options_.window);
  recent_.reserve(options_.horizon);
}

// Welford's update.
void SpikeScore::Moments::Add(double value) {
  count += 1;
  const double delta = value - mean;
  mean += delta / count;
  squares += delta * (value - mean);
}

// Chan, Golub & LeVeque's pairwise merge.
SpikeScore::Moments SpikeScore::Merge(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  Moments both;
  both.count = a.count + b.count;
  const double delta = b.mean - a.mean;
  both.mean = a.mean + delta * (b.count / both.count);
  both.squares = a.squares + b.squares + delta * delta * (a.count * b.count / both.count);
  return both;
}

bool SpikeScore::Observe(double value) {
  const bool full = values_.size() == options_.window;
  const bool finite = std::isfinite(value);
  const bool spike = !finite || (full && IsSpike(value));
  if (full) Count(spike);
  if (finite && !(spike && options_.exclude_flagged)) Store(value);
  return spike;
}

bool SpikeScore::IsSpike(double value) const {
  const Moments window = Merge(suffix_[next_], prefix_);
  const double std = std::sqrt(window.squares / window.count);
  const double above = value - window.mean;
  const double distance = options_.upper_only ? above : std::fabs(above);
  return std > 0 && distance >= options_.threshold_stds * std;
}

void SpikeScore::Store(double value) {
  if (values_.size() < options_.window) {
    values_.push_back(value);
    if (values_.size() == options_.window) MakeSuffixes(0);
    return;
  }
  values_[next_] = value;
  prefix_.Add(value);
  if (++next_ == options_.window) {
    next_ = 0;
    prefix_ = {};
    MakeSuffixes(0);
  }
}

void SpikeScore::MakeSuffixes(size_t from) {
  Moments moments;
  for (size_t i = values_.size(); i-- > from;) {
    moments.Add(values_[i]);
    suffix_[i] = moments;
  }
}

void SpikeScore::Count(bool spike) {
  ++evaluated_;
  if (spike) ++spikes_;
  if (options_.horizon == 0) return;
  const uint8_t flag = spike ? 1 : 0;
  if (recent_.size() < options_.horizon) {
    recent_.push_back(flag);
  } else {
    recent_spikes_ -= recent_[recent_next_];
    recent_[recent_next_] = flag;
    recent_next_ = (recent_next_ + 1) % options_.horizon;
  }
  recent_spikes_ += flag;
}

double SpikeScore::percent() const {
  if (evaluated_ == 0) return 0;
  if (options_.horizon == 0) return 100.0 * static_cast<double>(spikes_) / static_cast<double>(evaluated_);
  return 100.0 * recent_spikes_ / static_cast<double>(recent_.size());
}

bool SpikeScore::Rebuild() {
  prefix_ = {};
  recent_spikes_ = 0;
  const bool full = values_.size() == options_.window;
  const bool possible = values_.size() <= options_.window && (full ? next_ < options_.window : next_ == 0) &&
                        recent_.size() <= options_.horizon && (recent_next_ == 0 || recent_next_ < recent_.size()) &&
                        (options_.horizon == 0 || recent_.size() <= evaluated_) &&
                        (options_.horizon == 0 || evaluated_ == 0 || !recent_.empty());
  if (!possible) {
    values_.clear();
    recent_.clear();
    next_ = recent_next_ = 0;
    evaluated_ = spikes_ = 0;
    return false;
  }
  values_.reserve(options_.window);
  recent_.reserve(options_.horizon);
  if (full) MakeSuffixes(next_);
  for (uint32_t i = 0; i < next_; ++i) prefix_.Add(values_[i]);
  for (const uint8_t flag : recent_) recent_spikes_ += flag;
  return true;
}

}  // namespace gyrostat::stats
