#include "detect/rivals/window_rules.h"

#include <cmath>

namespace gyrostat::detect::rivals {
namespace {

using model::Signal;

struct Moments {
  double mean = 0, std = 0;
};

// `spare` is 0 for the population's, 1 for the sample's standard deviation.
Moments MomentsOf(const std::vector<double>& values, double spare) {
  Moments moments;
  const auto count = static_cast<double>(values.size());
  for (const double v : values) moments.mean += v;
  moments.mean /= count;
  double squares = 0;
  for (const double v : values) squares += (v - moments.mean) * (v - moments.mean);
  moments.std = std::sqrt(squares / (count - spare));
  return moments;
}

void Push(double value, size_t size_max, std::vector<double>* values) {
  if (values->capacity() <= size_max) values->reserve(size_max + 1);
  if (values->size() == size_max) values->erase(values->begin());
  values->push_back(value);
}

}  // namespace

Rival::Verdict OlmoCore::Judge(const model::Report& report) {
  constexpr size_t kWindow = 128;
  constexpr double kStds = 6, kStdMin = 1e-10;
  Verdict verdict;
  const auto judge = [&](Signal signal, std::vector<double>* window) {
    if (!report.Has(signal)) return;
    const double value = report.Scalar(signal);
    if (window->size() == kWindow) {
      const Moments moments = MomentsOf(*window, 0);
      const double limit = moments.mean + kStds * moments.std;
      if (!(moments.std < kStdMin) && value > limit && !verdict.fired)
        verdict = {.fired = true, .signal = signal, .value = value, .limit = limit};
    }
    Push(value, kWindow, window);
  };
  judge(Signal::kLoss, &state_.loss);
  judge(Signal::kGradNorm, &state_.grad_norm);
  return verdict;
}

Rival::Verdict OlmoCoreSkip::Judge(const model::Report& report) {
  constexpr size_t kWindow = 128, kLossesMin = 64;  // The latest is counted among them there, so 63 before it.
  constexpr double kStds = 6;
  Verdict verdict;
  const bool active = state_.loss.size() + 1 >= kLossesMin;
  const auto judge = [&](Signal signal, std::vector<double>* window) {
    if (!report.Has(signal)) return;
    const double value = report.Scalar(signal);
    if (active && window->size() >= 2) {
      const Moments moments = MomentsOf(*window, 1);
      const bool proceeds = std::fabs(value - moments.mean) / moments.std <= kStds;
      if (!proceeds && !verdict.fired)
        verdict = {.fired = true, .signal = signal, .value = value, .limit = moments.mean + kStds * moments.std};
    }
    Push(value, kWindow, window);
  };
  judge(Signal::kLoss, &state_.loss);
  judge(Signal::kGradNorm, &state_.grad_norm);
  return verdict;
}

Rival::Verdict Olmo2::Judge(const model::Report& report) {
  constexpr size_t kWindow = 1000;
  constexpr double kStds = 7;
  Verdict verdict;
  const auto judge = [&](Signal signal, std::vector<double>* window) {
    if (!report.Has(signal)) return;
    const double value = report.Scalar(signal);
    if (window->size() == kWindow) {
      const Moments moments = MomentsOf(*window, 0);
      const double limit = kStds * moments.std;
      if (moments.std > 0 && std::fabs(value - moments.mean) >= limit && !verdict.fired)
        verdict = {.fired = true, .signal = signal, .value = value, .limit = moments.mean + limit};
    }
    Push(value, kWindow, window);
  };
  judge(Signal::kLoss, &state_.loss);
  judge(Signal::kGradNorm, &state_.grad_norm);
  return verdict;
}

}  // namespace gyrostat::detect::rivals
