#include "ctl/replayed.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace gyrostat::ctl {
namespace {

using model::Signal;

constexpr size_t kMisfitsMax = 5;  // Told; a file of changing shapes has as many as rows.

// Steps as arithmetic progressions: what a log of millions of rows comes down to.
class StepSet {
 public:
  void Add(model::Step step) {
    if (!ranges_.empty()) {
      Range& last = ranges_.back();
      if (last.count == 1 && step > last.first) {
        last.stride = step - last.first;
        last.count = 2;
        return;
      }
      if (last.count > 1 && step == last.first + static_cast<model::Step>(last.count) * last.stride) {
        ++last.count;
        return;
      }
    }
    ranges_.push_back({step, 1, 1});
  }
  // Distinct ones. Only what was repeated in another attempt has to be looked at one by one.
  uint64_t Count(bool repeats) const {
    uint64_t count = 0;
    for (const Range& each : ranges_) count += each.count;
    if (!repeats) return count;
    std::vector<model::Step> all;
    all.reserve(count);
    for (const Range& each : ranges_)
      for (uint64_t i = 0; i < each.count; ++i) all.push_back(each.first + static_cast<model::Step>(i) * each.stride);
    std::ranges::sort(all);
    return static_cast<uint64_t>(std::unique(all.begin(), all.end()) - all.begin());
  }

 private:
  struct Range {
    model::Step first, stride;
    uint64_t count;
  };
  std::vector<Range> ranges_;
};

// A norm of -1 (DeepSpeed) was not measured; anything not finite was.
bool IsNorm(double value) { return !(value < 0); }

}  // namespace

struct Replay::Run {
  Replayed told;
  std::vector<std::unique_ptr<Judge>> judges;
  StepSet steps;
  std::set<Signal> signals;
  std::set<std::string> misfits;
  stats::SpikeScore loss, grad_norm;
  bool any = false;
};

Replay::Replay(const ReplayOptions& options) : options_(options) {}
Replay::~Replay() = default;

void Replay::OnRun(size_t index, const std::string& name, const model::ModelSpec& spec,
                   const model::AttnLogitInfo& attn) {
  if (runs_.size() <= index) runs_.resize(index + 1);
  runs_[index] = std::make_unique<Run>();
  Run* run = runs_[index].get();
  run->told.run = name;
  run->told.spec = SpecOf(spec);
  for (const std::string& each : options_.rules)
    run->judges.push_back(MakeJudge(each, run->told.spec, attn, options_.thresholds));
}

model::ModelSpec Replay::SpecOf(const model::ModelSpec& of_file) const {
  model::ModelSpec spec = options_.model.value_or(of_file);
  // Where a log has one maximum a layer, heads cannot be told apart, whatever the model has.
  if (options_.model && of_file.heads == 1) spec.heads = spec.kv_heads = 1;
  return spec;
}

void Replay::OnAttempt(size_t index, const model::ModelSpec& spec, const model::AttnLogitInfo& attn) {
  Run* run = runs_[index].get();
  run->told.spec = SpecOf(spec);
  for (const auto& judge : run->judges) judge->OnModel(run->told.spec, attn);
}

// Without what does not fit the model: the rest of the report is still good.
const model::Report& Replay::Fitting(const model::Report& report, Run* run) {
  if (model::CheckShapes(report, run->told.spec).empty()) return report;
  fitting_ = report;
  for (std::string why; !(why = model::CheckShapes(fitting_, run->told.spec)).empty();) {
    const model::SignalInfo* info = model::FindSignal(why.substr(0, why.find(' ')));
    if (info == nullptr) break;
    if (run->misfits.size() < kMisfitsMax) run->misfits.insert(why + "; it was left out");
    fitting_.MutableArray(info->signal).clear();
  }
  return fitting_;
}

void Replay::OnRow(const logs::Row& row) {
  Run* run = runs_[row.run].get();
  Replayed& told = run->told;
  if (row.attempt + 1 > told.attempts) {
    told.attempts = row.attempt + 1;
    for (const auto& judge : run->judges) judge->OnAttempt();
  }
  const model::Report& report = Fitting(row.report, run);
  for (const auto& judge : run->judges) judge->OnReport(report);
  // A report of nothing but user scalars is judged, and is no step with a signal.
  if (std::ranges::none_of(model::Signals(), [&report](const auto& info) { return report.Has(info.signal); })) return;
  run->steps.Add(report.step);
  told.first_step = run->any ? std::min(told.first_step, report.step) : report.step;
  told.last_step = run->any ? std::max(told.last_step, report.step) : report.step;
  run->any = true;
  if (report.Has(Signal::kLoss)) run->loss.Observe(report.Scalar(Signal::kLoss));
  if (report.Has(Signal::kGradNorm) && IsNorm(report.Scalar(Signal::kGradNorm)))
    run->grad_norm.Observe(report.Scalar(Signal::kGradNorm));
  Picture(report, run);
}

void Replay::Picture(const model::Report& report, Run* run) {
  for (const model::SignalInfo& info : model::Signals()) {
    if (!report.Has(info.signal)) continue;
    run->signals.insert(info.signal);
    if (model::IsScalar(info.signal)) {
      run->told.curves[info.signal].Add(report.step, report.Scalar(info.signal));
      continue;
    }
    if (info.shape == model::Shape::kRankDigest) continue;  // Five quantities side by side: no picture of their own.
    const std::span<const float> values = report.Array(info.signal);
    const Worst worst = WorstOf(info.signal);
    float most = model::kAbsent;
    for (const float value : values) {
      if (!std::isfinite(most)) break;  // As it was measured: NaN and infinities stay apart.
      most = std::isfinite(value) ? Worse(worst, most, value) : value;
    }
    if (model::IsAbsent(static_cast<double>(most))) continue;
    run->told.curves[info.signal].Add(report.step, static_cast<double>(most));
    size_t layers = run->told.spec.layers;
    if (info.shape == model::Shape::kBoundary || info.shape == model::Shape::kLayer || layers == 0)
      layers = values.size();
    run->told.layers.try_emplace(info.signal, worst).first->second.Add(report.step, values, layers);
    if (values.size() > layers)
      run->told.heads.try_emplace(info.signal, worst).first->second.Add(report.step, values, layers);
  }
}

Worst WorstOf(Signal signal) { return signal == Signal::kAttnEntropy ? Worst::kLowest : Worst::kHighest; }

std::vector<Replayed> Replay::Take(const std::string& file, const logs::ReadOutcome& outcome) {
  std::vector<Replayed> all;
  for (const auto& run : runs_) {
    if (run == nullptr) continue;
    Replayed& told = run->told;
    told.file = file;
    told.format = outcome.format;
    told.losses = outcome.losses;
    for (const std::string& each : run->misfits) told.losses.warnings.push_back(each);
    told.steps = run->steps.Count(told.attempts > 1);
    told.signals.assign(run->signals.begin(), run->signals.end());
    if (run->loss.evaluated() > 0) told.spike_score_loss = run->loss.percent();
    if (run->grad_norm.evaluated() > 0) told.spike_score_grad_norm = run->grad_norm.percent();
    for (const auto& judge : run->judges) {
      for (model::Finding& finding : judge->Findings())
        told.findings.push_back({std::string(judge->rules()), std::move(finding)});
      for (diagnose::Diagnosis& episode : judge->Episodes()) told.episodes.push_back(std::move(episode));
    }
    all.push_back(std::move(told));
  }
  runs_.clear();
  return all;
}

}  // namespace gyrostat::ctl
