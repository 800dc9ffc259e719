#include "detect/silence.h"

#include <algorithm>
#include <array>

#include "detect/text.h"

namespace gyrostat::detect {
namespace {

// Fewer intervals say little: the first steps compile, warm caches, load data.
constexpr size_t kIntervalsMin = 8;
// Reports that were held back come in a burst. Intervals this much shorter than usual are not steps ...
constexpr int64_t kBurstDivisor = 8;
// ... unless so many come in a row that the job has really become faster.
constexpr uint32_t kBurstMax = 4096;

// Of at most N values.
template <size_t N>
int64_t Median(const std::vector<int64_t>& values) {
  std::array<int64_t, N> copy;
  const auto end = std::copy(values.begin(), values.end(), copy.begin());
  const auto middle = copy.begin() + (end - copy.begin()) / 2;
  std::nth_element(copy.begin(), middle, end);
  return *middle;
}

}  // namespace

int64_t Silence::SilentAfterMs() const {
  if (intervals_ms_.empty()) return options_.silent_after_ms_max;
  const int64_t step_ms = intervals_ms_.size() < kIntervalsMin
                              ? *std::max_element(intervals_ms_.begin(), intervals_ms_.end())
                              : Median<kIntervalsMax>(intervals_ms_);
  const auto least = static_cast<double>(options_.silent_after_ms_min);
  const auto most = static_cast<double>(options_.silent_after_ms_max);
  const double wait = options_.step_times * static_cast<double>(step_ms);
  return static_cast<int64_t>(std::clamp(wait, least, std::max(least, most)));
}

std::optional<model::Finding> Silence::OnReport(model::Step step, int64_t now_ms) {
  std::optional<model::Finding> ended = End(step, now_ms);
  if (ended)
    ended->message = Sentence("Reports came back with step %lld after %.1f s.", Printable(step), ended->value);
  else if (watching_)  // A silence is no step time.
    Learn(std::max<int64_t>(0, now_ms - last_ms_));
  watching_ = true;
  last_ms_ = now_ms;
  last_step_ = step;
  return ended;
}

void Silence::Learn(int64_t interval_ms) {
  if (intervals_ms_.size() >= kIntervalsMin && interval_ms < Median<kIntervalsMax>(intervals_ms_) / kBurstDivisor &&
      ++burst_ <= kBurstMax)
    return;
  if (burst_ > kBurstMax) intervals_ms_.clear(), next_ = 0;
  burst_ = 0;
  if (intervals_ms_.size() < kIntervalsMax) {
    intervals_ms_.push_back(interval_ms);
    return;
  }
  intervals_ms_[next_] = interval_ms;
  next_ = (next_ + 1) % kIntervalsMax;
}

std::optional<model::Finding> Silence::OnTick(int64_t now_ms) {
  if (!watching_ || open_ || now_ms - last_ms_ <= SilentAfterMs()) return std::nullopt;
  model::Finding& finding = open_.emplace();
  finding.key = next_key_++;
  finding.detector = "silence";
  finding.severity = model::Severity::kWarning;
  finding.step_begin = finding.step_detected = last_step_;
  finding.value = static_cast<double>(now_ms - last_ms_) / 1000;
  finding.expected = static_cast<double>(SilentAfterMs()) / 1000;
  finding.message = Sentence("No report for %.1f s after step %lld; silence counts from %.1f s on.", finding.value,
                             Printable(last_step_), finding.expected);
  return open_;
}

std::optional<model::Finding> Silence::OnBye(int64_t now_ms) {
  watching_ = false;
  std::optional<model::Finding> ended = End(last_step_, now_ms);
  if (ended)
    ended->message = Sentence("The job said good-bye %.1f s after the report of step %lld.", ended->value,
                              Printable(last_step_));
  return ended;
}

std::optional<model::Finding> Silence::End(model::Step step, int64_t now_ms) {
  if (!open_) return std::nullopt;
  model::Finding finding = *open_;
  open_.reset();
  finding.step_end = step;
  finding.healed = true;
  finding.value = static_cast<double>(now_ms - last_ms_) / 1000;
  return finding;
}

}  // namespace gyrostat::detect
