#include "logs/keys.h"

#include <algorithm>
#include <array>
#include <span>

#include "logs/number.h"

namespace gyrostat::logs {
namespace {

using model::Signal;
using Names = std::span<const std::string_view>;

constexpr size_t kKnownMax = 20000;  // Names remembered; a hostile file has more than a real one.
constexpr uint32_t kIndexMax = 1023;  // Of a layer or head: one below model::kLayersMax and kHeadsMax.

// The earlier the better: where a file has several, the first counts.
constexpr std::array<std::string_view, 15> kLoss = {
    "loss", "lm_loss", "losses", "reduced_train_loss", "trl", "global_avg_loss", "loss_step", "loss_train",
    "ce_loss", "cross_entropy_loss", "crossentropyloss", "nll_loss", "avg_loss", "loss_avg", "total_loss"};
constexpr std::array<std::string_view, 14> kGradNorm = {
    "grad_norm", "gradient_norm", "global_grad_norm", "global_gradient_norm", "gnorm", "grad_norms", "gradient_norms",
    "total_grad_norm", "grad_norm_total", "grad_2_0_norm_total", "l2_norm_grad_global", "gradnorm", "grad_l2_norm",
    "norm"};
constexpr std::array<std::string_view, 13> kLearningRate = {
    "learning_rate", "lr", "learning_rates", "lrs", "lr_0", "learning_rate_group0", "lr_group0", "lr_adamw", "lr_adam",
    "lr_adamw_pg1", "lr_pg1", "current_lr", "optimizer_lr"};
constexpr std::array<std::string_view, 3> kLossScale = {"loss_scale", "amp_scale", "grad_scale"};
constexpr std::array<std::string_view, 3> kLogZ = {"log_z", "logz", "mean_log_z"};

struct Named {
  Signal signal;
  Names names;
};
constexpr std::array kScalars = {
    Named{Signal::kLoss, kLoss}, Named{Signal::kGradNorm, kGradNorm}, Named{Signal::kLearningRate, kLearningRate},
    Named{Signal::kLossScale, kLossScale}, Named{Signal::kLogZ, kLogZ}};

// With the words for layer and head, and percentiles, taken out.
constexpr std::array<std::string_view, 15> kLogitMax = {
    "attn_logit_max", "attn_logits_max", "logits_max", "attention_logits_max", "attention_logit_max", "max_attn_logit",
    "max_attn_logits", "max_attention_logit", "max_attention_logits", "attn_max_logit", "max_logit", "attn_logits",
    "attn_logit", "logits", "qk_max"};
constexpr std::array<std::string_view, 4> kLayerGradNorm = {"layer_grad_norm", "grad_norm", "gradient_norm",
                                                            "grad_norms"};
constexpr std::array<std::string_view, 5> kEntropy = {"attn_entropy", "attn_entropy_mean", "attention_entropy",
                                                      "attention_entropy_mean", "entropy_mean"};
constexpr std::array<std::string_view, 3> kParamNorm = {"param_norm", "weight_norm", "params_norm"};
constexpr std::array kArrays = {
    Named{Signal::kAttnLogitMax, kLogitMax}, Named{Signal::kLayerGradNorm, kLayerGradNorm},
    Named{Signal::kAttnEntropy, kEntropy}, Named{Signal::kParamNorm, kParamNorm}};

constexpr std::array<std::string_view, 12> kSteps = {
    "step", "global_step", "iteration", "iter", "current_steps", "num_updates", "optimizer_step", "steps", "iterations",
    "n_iter", "itr", "update"};
constexpr uint8_t kWandbStep = 200, kTrainStep = 201;
// Words before a name that say no more than that it is of the training itself.
constexpr std::array<std::string_view, 8> kTraining = {"train_inner_", "train_", "training_", "trainer_", "metrics_",
                                                       "loss_metrics_", "optim_", "optimizer_"};

std::string_view WithoutTraining(std::string_view name) {
  for (const std::string_view prefix : kTraining)
    if (name.substr(0, prefix.size()) == prefix) return name.substr(prefix.size());
  return name;
}

std::optional<uint8_t> RankIn(Names names, std::string_view name) {
  const auto it = std::ranges::find(names, name);
  if (it == names.end()) return std::nullopt;
  return static_cast<uint8_t>(2 * (it - names.begin()));
}

// As it stands, or without the word for training and then one worse.
std::optional<uint8_t> RankOf(Names names, std::string_view name) {
  if (const auto rank = RankIn(names, name)) return rank;
  const std::string_view bare = WithoutTraining(name);
  if (bare == name) return std::nullopt;
  const auto rank = RankIn(names, bare);
  return rank ? std::optional<uint8_t>(*rank + 1) : std::nullopt;
}

std::optional<uint32_t> Index(std::string_view digits) {
  if (digits.empty() || digits.size() > 4 || !std::ranges::all_of(digits, IsDigit)) return std::nullopt;
  uint32_t value = 0;
  for (const char c : digits) value = value * 10 + static_cast<uint32_t>(c - '0');
  return value <= kIndexMax ? std::optional(value) : std::nullopt;
}

// "layer5" or "layer", "5": the index that `words` spell at `*at`, which moves to the last of them.
std::optional<uint32_t> IndexAt(std::span<const std::string_view> words, size_t* at, Names heads) {
  for (const std::string_view head : heads) {
    const std::string_view word = words[*at];
    if (word.substr(0, head.size()) != head) continue;
    if (word.size() > head.size()) {
      if (const auto index = Index(word.substr(head.size()))) return index;
    } else if (*at + 1 < words.size()) {
      if (const auto index = Index(words[*at + 1])) return ++*at, index;
    }
  }
  return std::nullopt;
}

bool IsPercentile(std::string_view word) {
  return word.size() > 1 && word[0] == 'p' && std::ranges::all_of(word.substr(1), IsDigit);
}

// A name that holds a layer: which, and of what.
Meaning Cell(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kLayer = {"layers", "layer", "blocks", "block"};
  static constexpr std::array<std::string_view, 2> kHead = {"heads", "head"};
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('_', begin), name.size());
    words.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  Meaning meaning;
  std::string rest;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!meaning.layer && (meaning.layer = IndexAt(words, &i, kLayer))) continue;
    if (!meaning.head && (meaning.head = IndexAt(words, &i, kHead))) continue;
    if (IsPercentile(words[i])) {
      meaning.logit_kind = model::LogitKind::kSampledLower;
      continue;
    }
    rest += (rest.empty() ? "" : "_") + std::string(words[i]);
  }
  if (!meaning.layer) return {};
  const bool percentile = meaning.logit_kind != model::LogitKind::kUnknown;
  for (const Named& each : kArrays) {
    const auto rank = RankOf(each.names, rest);
    // A bare "logits" is a maximum only as a percentile; the percentile of anything else is another thing.
    if (!rank || (percentile && each.signal != Signal::kAttnLogitMax)) continue;
    if (!percentile && (rest == "logits" || rest == "attn_logits" || rest == "attn_logit")) continue;
    meaning.kind = Meaning::Kind::kSignal;
    meaning.signal = each.signal;
    meaning.rank = *rank;
    return meaning;
  }
  const model::SignalInfo* info = model::FindSignal(WithoutTraining(rest));
  if (info == nullptr || !model::IsArray(info->signal) || percentile) return {};
  meaning.kind = Meaning::Kind::kSignal;
  meaning.signal = info->signal;
  return meaning;
}

// Where `pattern` matches `key`; fills layer and head.
bool Matches(std::string_view pattern, std::string_view key, Meaning* meaning) {
  meaning->layer.reset();
  meaning->head.reset();
  while (!pattern.empty()) {
    const bool star = pattern[0] == '*';
    const bool layer = pattern.substr(0, 7) == "{layer}" || (star && !meaning->layer);
    const bool head = !layer && (pattern.substr(0, 6) == "{head}" || star);
    if (!layer && !head) {
      if (key.empty() || key[0] != pattern[0]) return false;
      key.remove_prefix(1);
      pattern.remove_prefix(1);
      continue;
    }
    size_t digits = 0;
    while (digits < key.size() && digits < 4 && IsDigit(key[digits])) ++digits;
    const auto index = Index(key.substr(0, digits));
    if (!index) return false;
    (layer ? meaning->layer : meaning->head) = index;
    key.remove_prefix(digits);
    pattern.remove_prefix(star ? 1 : layer ? 7 : 6);
  }
  return key.empty();
}

}  // namespace

std::string Normalised(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (IsAlpha(c) || IsDigit(c)) out.push_back(Lower(c));
    else if (!out.empty() && out.back() != '_') out.push_back('_');
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

std::optional<Mapping> ParseMapping(const std::string& text, std::string* error) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    *error = "\"" + text + "\" is no mapping; wanted SIGNAL=COLUMN, as loss=train/ce";
    return std::nullopt;
  }
  Mapping mapping{text.substr(0, equals), text.substr(equals + 1)};
  if (mapping.signal == "step" || model::FindSignal(mapping.signal) != nullptr) return mapping;
  *error = "no signal \"" + mapping.signal + "\"; there are: step";
  for (const model::SignalInfo& each : model::Signals()) *error += ", " + std::string(each.name);
  return std::nullopt;
}

const Meaning& KeyMap::Find(const std::string& key) {
  const auto it = known_.find(key);
  if (it != known_.end()) return it->second;
  if (known_.size() >= kKnownMax) known_.clear();
  return known_.emplace(key, Work(key)).first->second;
}

bool KeyMap::ByHand(Signal signal) const {
  const std::string_view name = signal == Signal::kNone ? std::string_view("step") : model::SignalName(signal);
  return std::ranges::any_of(options_.map, [name](const Mapping& each) { return each.signal == name; });
}

Meaning KeyMap::Work(std::string_view key) const {
  Meaning meaning;
  for (const Mapping& each : options_.map) {
    if (!Matches(each.column, key, &meaning)) continue;
    const model::SignalInfo* info = model::FindSignal(each.signal);
    meaning.kind = info == nullptr ? Meaning::Kind::kStep : Meaning::Kind::kSignal;
    meaning.signal = info == nullptr ? Signal::kNone : info->signal;
    return meaning;
  }
  meaning = {};
  if (!options_.run_column.empty() && key == options_.run_column) {
    meaning.kind = Meaning::Kind::kRun;
    return meaning;
  }
  const std::string name = Normalised(key);
  const auto is = [&meaning](Meaning::Kind kind, Signal signal, uint8_t rank) {
    meaning.kind = kind;
    meaning.signal = signal;
    meaning.rank = rank;
    return meaning;
  };
  if (options_.run_column.empty() && (name == "run_id" || name == "run"))
    return is(Meaning::Kind::kRun, Signal::kNone, name == "run" ? 1 : 0);
  if (name == "split" || name == "phase" || name == "stage" || name == "mode")
    return is(Meaning::Kind::kSplit, Signal::kNone, 0);
  if (!ByHand(Signal::kNone)) {
    if (key == "_step") return is(Meaning::Kind::kStep, Signal::kNone, kWandbStep);
    if (name == "train_step") return is(Meaning::Kind::kStep, Signal::kNone, kTrainStep);
    if (const auto rank = RankOf(kSteps, name)) return is(Meaning::Kind::kStep, Signal::kNone, *rank);
  }
  for (const Named& each : kScalars)
    if (const auto rank = RankOf(each.names, name); rank && !ByHand(each.signal))
      return is(Meaning::Kind::kSignal, each.signal, *rank);
  if (const model::SignalInfo* info = model::FindSignal(WithoutTraining(name));
      info != nullptr && !ByHand(info->signal))
    return is(Meaning::Kind::kSignal, info->signal, 0);
  meaning = Cell(name);
  if (meaning.kind == Meaning::Kind::kNothing)
    if (const auto rank = RankOf(kLogitMax, name); rank && name.find("max") != std::string::npos)
      is(Meaning::Kind::kSignal, Signal::kAttnLogitMax, *rank);
  return meaning.kind == Meaning::Kind::kSignal && ByHand(meaning.signal) ? Meaning() : meaning;
}

}  // namespace gyrostat::logs
