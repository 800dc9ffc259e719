// Feeds a detector one report after another and keeps what it says.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "detect/detector.h"

namespace gyrostat::detect {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

class Feed {
 public:
  explicit Feed(std::unique_ptr<Detector> detector) : detector_(std::move(detector)) {}

  // The next report, made by `fill` from an empty one with step, sequence and boundary set. Returns what is new.
  std::vector<model::Finding> Give(const std::function<void(model::Report*)>& fill) {
    report_.Clear();
    report_.step = step_++;
    report_.sequence = ++sequence_;
    report_.boundary = sequence_;
    fill(&report_);
    std::vector<model::Finding> fresh;
    detector_->Observe(report_, &fresh);
    said.insert(said.end(), fresh.begin(), fresh.end());
    return fresh;
  }
  std::vector<model::Finding> Scalar(model::Signal signal, double value) {
    return Give([=](model::Report* r) { r->SetScalar(signal, value); });
  }
  void Scalars(model::Signal signal, double value, int times) {
    for (int i = 0; i < times; ++i) Scalar(signal, value);
  }
  std::vector<model::Finding> Array(model::Signal signal, std::vector<float> values,
                                    model::LogitKind kind = model::LogitKind::kExact) {
    return Give([&](model::Report* r) {
      r->MutableArray(signal) = std::move(values);
      r->attn_logit_kind = kind;
      r->ledger_version = ledger_version;
    });
  }
  void Break(detect::Break kind) {
    if (kind == detect::Break::kNewAttempt) sequence_ = 0;
    detector_->OnBreak(kind, step_, &said);
  }
  void SkipSequence() { ++sequence_; }  // A report that the daemon never saw.
  Detector& detector() { return *detector_; }

  std::vector<model::Finding> said;
  uint64_t ledger_version = 0;

 private:
  std::unique_ptr<Detector> detector_;
  model::Report report_;
  model::Step step_ = 0;
  uint64_t sequence_ = 0;
};

// "info 3..7 healed", "warning 3.. open": enough to state what a test expects in one line.
inline std::string Brief(const model::Finding& f) {
  std::string text = std::string(model::Token(f.severity)) + " " + std::to_string(f.step_begin) + "..";
  if (!f.step_end) return text + " open";
  text += std::to_string(*f.step_end);
  return text + (f.healed ? (*f.healed ? " healed" : " not healed") : " ended");
}
inline std::vector<std::string> Brief(const std::vector<model::Finding>& findings) {
  std::vector<std::string> all;
  for (const model::Finding& f : findings) all.push_back(Brief(f));
  return all;
}

}  // namespace gyrostat::detect
