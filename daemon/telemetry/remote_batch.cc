#include "telemetry/remote_batch.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "prometheus/remote_write.pb.h"
#include "telemetry/catalog.h"

namespace gyrostat::telemetry {
namespace {

using model::Report;
using model::Signal;

constexpr RemoteMetric kOnlyRemote[] = {
    {"gyrostat_embedding_grad_norm", "run", "L2 norm of the embedding's gradient; only by remote write."},
    {"gyrostat_output_grad_norm", "run", "L2 norm of the output head's gradient; only by remote write."},
    {"gyrostat_output_logit_absmax", "run", "Largest magnitude among output logits; only by remote write."},
    {"gyrostat_log_z", "run", "Mean log partition of the output softmax; only by remote write."},
    {"gyrostat_loss_scale", "run", "Dynamic loss scale; only by remote write."},
    {"gyrostat_qk_ratio", "run", "Largest RMS of a key projection over that of its query projection, either way round; "
                                 "only by remote write."},
    {"gyrostat_head_cross_attention_logit_max", "run,layer,head",
     "Largest cross-attention logit of the head; only by remote write."},
    {"gyrostat_update_rms", "run,layer", "RMS of the layer's update; only by remote write."},
    {"gyrostat_param_norm", "run,layer", "L2 norm of the layer's weights; only by remote write."},
    {"gyrostat_attention_entropy", "run,layer,head",
     "Mean entropy of the attention's rows, nats; without the head where it is per layer; only by remote write."},
    {"gyrostat_nonfinite", "run,layer", "NaN and Inf in the layer's output; only by remote write."},
    {"gyrostat_rank_loss", "run,rank", "Loss that the rank saw by itself; only by remote write."},
    {"gyrostat_rank_grad_norm", "run,rank", "Gradient norm of the rank before any reduction; only by remote write."},
    {"gyrostat_rank_step_time_seconds", "run,rank", "Step time of the rank; only by remote write."},
    {"gyrostat_user", "run,name", "A scalar that the job reports under a name of its own; only by remote write."},
};

const char* MetricName(MetricId id) { return RunMetrics()[static_cast<size_t>(id)].name; }

// Of a scalar, and the value of its label "signal" where it has one.
std::pair<const char*, const char*> ScalarName(Signal signal) {
  switch (signal) {
    case Signal::kLoss: return {MetricName(MetricId::kLoss), nullptr};
    case Signal::kLearningRate: return {MetricName(MetricId::kLearningRate), nullptr};
    case Signal::kGradNorm: return {MetricName(MetricId::kGradNorm), nullptr};
    case Signal::kEmbeddingGradNorm: return {"gyrostat_embedding_grad_norm", nullptr};
    case Signal::kOutputGradNorm: return {"gyrostat_output_grad_norm", nullptr};
    case Signal::kOutputLogitAbsmax: return {"gyrostat_output_logit_absmax", nullptr};
    case Signal::kLogZ: return {"gyrostat_log_z", nullptr};
    case Signal::kLossScale: return {"gyrostat_loss_scale", nullptr};
    case Signal::kSpikeScoreLoss: return {MetricName(MetricId::kSpikeScorePercent), "loss"};
    case Signal::kSpikeScoreGradNorm: return {MetricName(MetricId::kSpikeScorePercent), "grad_norm"};
    case Signal::kQkRatio: return {"gyrostat_qk_ratio", nullptr};
    default: return {nullptr, nullptr};
  }
}

// Of an array: its metric, the label "site" where it has one (nullptr: none; "": embedding and residual stream).
std::pair<const char*, const char*> ArrayName(Signal signal) {
  switch (signal) {
    case Signal::kLayerGradNorm: return {MetricName(MetricId::kLayerGradNorm), nullptr};
    case Signal::kHiddenMs: return {MetricName(MetricId::kHiddenRms), ""};
    case Signal::kHiddenAbsmax: return {MetricName(MetricId::kHiddenAbsmax), ""};
    case Signal::kAttnOutMs: return {MetricName(MetricId::kHiddenRms), "attn_out"};
    case Signal::kMlpOutMs: return {MetricName(MetricId::kHiddenRms), "mlp_out"};
    case Signal::kLnInputMs: return {MetricName(MetricId::kHiddenRms), "ln_input"};
    case Signal::kAttnLogitMax: return {kHeadLogitMax.name, nullptr};
    case Signal::kCrossAttnLogitMax: return {"gyrostat_head_cross_attention_logit_max", nullptr};
    case Signal::kUpdateRms: return {"gyrostat_update_rms", nullptr};
    case Signal::kParamNorm: return {"gyrostat_param_norm", nullptr};
    case Signal::kAttnEntropy: return {"gyrostat_attention_entropy", nullptr};
    case Signal::kNonfinite: return {"gyrostat_nonfinite", nullptr};
    default: return {nullptr, nullptr};
  }
}

bool IsMeanSquare(Signal signal) {
  return signal == Signal::kHiddenMs || signal == Signal::kAttnOutMs || signal == Signal::kMlpOutMs ||
         signal == Signal::kLnInputMs;
}

// How many values belong to a layer; 1 where the signal has no heads, 0 where nobody can tell.
size_t PerLayer(Signal signal, size_t size, const model::ModelSpec& spec) {
  const model::Shape shape = model::FindSignal(signal)->shape;
  const bool has_heads =
      shape == model::Shape::kLayerHead || (shape == model::Shape::kLayerOrLayerHead && size != spec.layers);
  if (!has_heads) return 1;
  const size_t heads = spec.heads > 0 ? spec.heads : spec.layers > 0 ? size / spec.layers : 0;
  return heads > 0 && size % heads == 0 ? heads : 0;
}

// Fills requests with series, and hands each over when it is full.
class Filler {
 public:
  Filler(const BatchOf& of, std::span<const Report> reports, std::span<const int64_t> unix_ms, size_t samples_max,
         const TakeRequest& take)
      : of_(of), reports_(reports), unix_ms_(unix_ms), samples_max_(samples_max), take_(take) {}

  using Labels = std::initializer_list<std::pair<const char*, std::string_view>>;  // Sorted; empty values are left out.

  // `value_of(report)` may be absent. `labels` without the name and the run; those before "run" in the alphabet first.
  template <class ValueOf>
  void Add(const char* name, Labels before_run, Labels after_run, const ValueOf& value_of) {
    if (!going_) return;
    prometheus::TimeSeries* series = nullptr;
    for (size_t r = 0; r < reports_.size(); ++r) {
      const double value = value_of(reports_[r]);
      if (model::IsAbsent(value)) continue;
      if (series == nullptr) {
        series = request_.add_timeseries();
        Label(series, "__name__", name);
        for (const auto& [label, text] : before_run) Label(series, label, text);
        Label(series, "run", of_.run);
        for (const auto& [label, text] : after_run) Label(series, label, text);
      }
      prometheus::Sample* sample = series->add_samples();
      // Any NaN but the one that means "stale" to Prometheus.
      sample->set_value(std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value);
      sample->set_timestamp(unix_ms_[r]);
      ++samples_;
    }
    if (samples_ + reports_.size() > samples_max_) Flush();
  }

  void Flush() {
    if (going_ && samples_ > 0) going_ = take_(request_, samples_);
    request_.Clear();
    samples_ = 0;
  }
  bool Finish() {
    Flush();
    return going_;
  }

 private:
  static void Label(prometheus::TimeSeries* series, const char* name, std::string_view value) {
    if (value.empty()) return;
    prometheus::Label* label = series->add_labels();
    label->set_name(name);
    label->set_value(value.data(), value.size());
  }

  const BatchOf& of_;
  const std::span<const Report> reports_;
  const std::span<const int64_t> unix_ms_;
  const size_t samples_max_;
  const TakeRequest& take_;
  prometheus::WriteRequest request_;
  size_t samples_ = 0;
  bool going_ = true;
};

double At(const Report& report, Signal signal, size_t index) {
  const std::span<const float> array = report.Array(signal);
  return static_cast<double>(index < array.size() ? array[index] : model::kAbsent);
}

void AddStream(Signal signal, const char* name, size_t size, const BatchOf& of, const char* site, Filler* filler) {
  const bool has_embedding = *site == '\0' && size == of.spec.layers + size_t{1};
  for (size_t i = 0; i < size; ++i) {
    const bool embedding = has_embedding && i == 0;
    const std::string layer = std::to_string(has_embedding && i > 0 ? i - 1 : i);
    filler->Add(name, {{"layer", layer}}, {{"site", embedding ? "embedding" : *site == '\0' ? "residual" : site}},
                [&](const Report& report) {
                  const double value = At(report, signal, i);
                  return IsMeanSquare(signal) && !model::IsAbsent(value) ? std::sqrt(value) : value;
                });
  }
}

void AddLayerMax(size_t size, size_t per_layer, Filler* filler) {
  for (size_t layer = 0; layer < size / per_layer; ++layer)
    filler->Add(MetricName(MetricId::kLogitMax), {{"layer", std::to_string(layer)}}, {}, [&](const Report& report) {
      float max = model::kAbsent;  // Below every measured value.
      const std::span<const float> array = report.Array(Signal::kAttnLogitMax);
      if (array.size() != size) return static_cast<double>(max);
      for (const float value : array.subspan(layer * per_layer, per_layer))
        if (std::isnan(value) || value > max) max = value;  // A NaN stays: nothing is larger.
      return static_cast<double>(max);
    });
}

void AddArray(Signal signal, size_t size, const BatchOf& of, Filler* filler) {
  const auto [name, site] = ArrayName(signal);
  if (name == nullptr) return;
  if (site != nullptr) return AddStream(signal, name, size, of, site, filler);
  const size_t per_layer = PerLayer(signal, size, of.spec);
  if (per_layer == 0) return;
  if (signal == Signal::kAttnLogitMax) AddLayerMax(size, per_layer, filler);
  const model::Shape shape = model::FindSignal(signal)->shape;
  const bool heads = shape == model::Shape::kLayerHead ||
                     (shape == model::Shape::kLayerOrLayerHead && size != of.spec.layers);
  for (size_t i = 0; i < size; ++i) {
    const std::string layer = std::to_string(i / per_layer), head = heads ? std::to_string(i % per_layer) : "";
    filler->Add(name, {{"head", head}, {"layer", layer}}, {},
                [&](const Report& report) { return At(report, signal, i); });
  }
}

// Slots rotate among ranks, so a series is looked for by its rank.
void AddRanks(std::span<const Report> reports, Filler* filler) {
  std::set<uint32_t> ranks;
  const auto slots = [](const Report& report) { return report.Array(Signal::kRankDigest); };
  for (const Report& report : reports)
    for (size_t i = 0; i + model::kRankDigestFields <= slots(report).size(); i += model::kRankDigestFields)
      if (slots(report)[i] >= 0) ranks.insert(static_cast<uint32_t>(slots(report)[i]));
  static constexpr std::pair<const char*, double> kFields[] = {
      {"gyrostat_rank_loss", 1}, {"gyrostat_rank_grad_norm", 1}, {"gyrostat_rank_step_time_seconds", 1e-3}};
  for (const uint32_t rank : ranks) {
    const std::string text = std::to_string(rank);
    for (size_t field = 0; field < std::size(kFields); ++field)
      filler->Add(kFields[field].first, {{"rank", text}}, {}, [&](const Report& report) {
        for (size_t i = 0; i + model::kRankDigestFields <= slots(report).size(); i += model::kRankDigestFields) {
          if (slots(report)[i] != static_cast<float>(rank)) continue;
          const double value = static_cast<double>(slots(report)[i + 1 + field]);
          return model::IsAbsent(value) ? value : value * kFields[field].second;
        }
        return static_cast<double>(model::kAbsent);
      });
  }
}

void AddUser(std::span<const Report> reports, Filler* filler) {
  std::set<std::string> names;
  for (const Report& report : reports)
    for (const auto& [name, value] : report.user) names.insert(name);
  for (const std::string& name : names)
    filler->Add("gyrostat_user", {{"name", name}}, {}, [&](const Report& report) {
      const auto it = std::ranges::find(report.user, name, &std::pair<std::string, double>::first);
      return it == report.user.end() ? static_cast<double>(model::kAbsent) : it->second;
    });
}

bool Wanted(const BatchOf& of, Signal signal) { return of.signals.empty() || of.signals.contains(signal); }

// Upper bound of the samples of one report.
size_t SamplesOf(const BatchOf& of, const Report& report) {
  size_t samples = 1 + (Wanted(of, Signal::kNone) ? report.user.size() : 0);
  for (const model::SignalInfo& info : model::Signals()) {
    if (!Wanted(of, info.signal)) continue;
    samples += model::IsScalar(info.signal) ? 1 : report.Array(info.signal).size();
    if (info.signal == Signal::kAttnLogitMax) samples += of.spec.layers;
  }
  return samples;
}

bool SameShapes(const Report& a, const Report& b) {
  return std::ranges::all_of(model::Signals(), [&](const model::SignalInfo& info) {
    if (!model::IsArray(info.signal) || info.signal == Signal::kRankDigest) return true;
    const size_t first = a.Array(info.signal).size(), second = b.Array(info.signal).size();
    return first == second || first == 0 || second == 0;
  });
}

}  // namespace

size_t BatchSize(const BatchOf& of, std::span<const Report> reports, size_t samples_max) {
  size_t samples = 0;
  for (size_t i = 0; i < reports.size(); ++i) {
    samples += SamplesOf(of, reports[i]);
    if (i == 0) continue;
    if (samples > samples_max) return i;
    for (size_t earlier = 0; earlier < i; ++earlier)
      if (!SameShapes(reports[earlier], reports[i])) return i;
  }
  return reports.size();
}

bool ForEachRequest(const BatchOf& of, std::span<const Report> reports, std::span<const int64_t> unix_ms,
                    size_t samples_max, const TakeRequest& take) {
  Filler filler(of, reports, unix_ms, samples_max, take);
  filler.Add(MetricName(MetricId::kStep), {}, {}, [](const Report& r) { return static_cast<double>(r.step); });
  for (const model::SignalInfo& info : model::Signals()) {
    const Signal signal = info.signal;
    if (!Wanted(of, signal)) continue;
    if (model::IsScalar(signal)) {
      const auto [name, label] = ScalarName(signal);
      if (name == nullptr) continue;
      filler.Add(name, {}, {{"signal", label == nullptr ? "" : label}},
                 [signal](const Report& report) { return report.Scalar(signal); });
    } else if (signal == Signal::kRankDigest) {
      AddRanks(reports, &filler);
    } else {
      size_t size = 0;
      for (const Report& report : reports) size = std::max(size, report.Array(signal).size());
      AddArray(signal, size, of, &filler);
    }
  }
  if (Wanted(of, Signal::kNone)) AddUser(reports, &filler);
  return filler.Finish();
}

std::span<const RemoteMetric> RemoteOnlyMetrics() { return kOnlyRemote; }

}  // namespace gyrostat::telemetry
