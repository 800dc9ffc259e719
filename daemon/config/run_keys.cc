#include "config/run_keys.h"

#include "config/key_types.h"

namespace gyrostat::config {
namespace {

using model::ClipVariant;
using model::ClipWhere;
using model::InterventionKind;
using model::Mode;

// Keys of one struct of thresholds, below one prefix.
class Section {
 public:
  Section(std::string prefix, std::vector<Key>* keys) : prefix_(std::move(prefix)), keys_(keys) {}

  template <class Get>
  void Integer(const char* name, const char* description, int64_t min, int64_t max, Get get) {
    keys_->push_back(IntegerKey((prefix_ + name).c_str(), description, min, max, get, Change::kReload));
  }
  template <class Get>
  void Number(const char* name, const char* description, double min, double max, Get get) {
    keys_->push_back(NumberKey((prefix_ + name).c_str(), description, min, max, get, Change::kReload));
  }

 private:
  const std::string prefix_;
  std::vector<Key>* const keys_;
};

template <class E>
std::vector<Choice<E>> Tokens(std::initializer_list<E> values) {
  std::vector<Choice<E>> choices;
  for (const E value : values) choices.emplace_back(Token(value), value);
  return choices;
}

void AppendQkClipKeys(std::vector<Key>* keys) {
  Section qk_clip("policy.qk_clip.", keys);
  qk_clip.Number(
      "tau", "No head's largest attention logit shall stay above this. The attn_logit detector uses it too.", 1, 1e6,
      [](auto& c) -> auto& { return c.engine.run.policy.qk_clip.tau; });
  keys->push_back(ChoiceKey<ClipWhere>(
      "policy.qk_clip.where",
      "remote: the daemon computes each head's target. local: the daemon sends tau and the job clips by itself at "
      "once.",
      Tokens({ClipWhere::kRemote, ClipWhere::kLocal}),
      [](auto& c) -> auto& { return c.engine.run.policy.qk_clip.where; }, Change::kReload));
  keys->push_back(ChoiceKey<ClipVariant>(
      "policy.qk_clip.variant",
      "What is scaled where heads share keys. group_min: the whole group by its worst head. q_only: that head's "
      "queries alone, "
      "which touches no healthy head but lets queries and keys drift apart.",
      Tokens({ClipVariant::kGroupMin, ClipVariant::kQOnly}),
      [](auto& c) -> auto& { return c.engine.run.policy.qk_clip.variant; }, Change::kReload));
  qk_clip.Integer(
      "quiet_boundaries", "An intervention closes after so many step boundaries without an order.", 1, 100000,
      [](auto& c) -> auto& { return c.engine.run.policy.qk_clip.quiet_boundaries; });
  qk_clip.Integer(
      "judged_boundaries", "So many step boundaries after it opened, its outcome is judged.", 10, 10000,
      [](auto& c) -> auto& { return c.engine.run.policy.qk_clip.judged_boundaries; });
}

void AppendMeasureKeys(std::vector<Key>* keys) {
  Section policy("policy.", keys);
  policy.Number(
      "warmup_extension.stretch",
      "Where an extended warm-up ends, in units of the declared one, unless somebody names a step. During the warm-up "
      "of a post-norm model mode act orders it unasked: a late one is useless.", 1.1, 8,
      [](auto& c) -> auto& { return c.engine.run.policy.warmup_extension.stretch; });
  policy.Integer(
      "deepnorm_alpha.ramp", "So many step boundaries until alpha is at its target. Slower ramps rescued less.", 1, 200,
      [](auto& c) -> auto& { return c.engine.run.policy.deepnorm_alpha.ramp; });
  policy.Number(
      "lr_scale.scale", "What lr_scale multiplies the learning rate by, unless somebody names a factor.", 0.01, 1,
      [](auto& c) -> auto& { return c.engine.run.policy.lr_scale.scale; });
  policy.Integer(
      "lr_scale.for_boundaries", "For so many step boundaries; 0: for good.", 0, 1000000,
      [](auto& c) -> auto& { return c.engine.run.policy.lr_scale.for_boundaries; });
}

}  // namespace

void AppendPolicyKeys(std::vector<Key>* keys) {
  keys->push_back(ChoiceKey<Mode>(
      "policy.mode",
      "How runs begin. observe: decide and record, send nothing. advise: propose and wait for approval. act: send "
      "what "
      "`automatic` allows. gyrostatctl mode changes a run that is there.",
      Tokens({Mode::kObserve, Mode::kAdvise, Mode::kAct}), [](auto& c) -> auto& { return c.engine.run.policy.mode; },
      Change::kReload));
  keys->push_back(ChoicesKey<InterventionKind>(
      "policy.automatic", "What mode act may send unasked; all else waits for approval. The job must allow it too.",
      Tokens({InterventionKind::kQkClip, InterventionKind::kWarmupExtension, InterventionKind::kDeepnormAlpha,
              InterventionKind::kLrScale, InterventionKind::kGradClip, InterventionKind::kSkipStep,
              InterventionKind::kCheckpoint, InterventionKind::kRollback, InterventionKind::kHalt,
              InterventionKind::kCollect}),
      [](auto& c) -> auto& { return c.engine.run.policy.automatic; }, Change::kReload));
  AppendQkClipKeys(keys);
  AppendMeasureKeys(keys);
  Section policy("policy.", keys);
  policy.Integer(
      "budget_per_1000_steps", "Interventions that a run may see in 1000 steps, all kinds together.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.policy.budget_per_1000_steps; });
  policy.Integer(
      "cooldown_boundaries", "Step boundaries between the end of one intervention and the next, of any kind.", 0,
      100000, [](auto& c) -> auto& { return c.engine.run.policy.cooldown_boundaries; });
  policy.Integer(
      "failures_to_disable", "So many ineffective or harmful outcomes of a kind disable it for the run.", 1, 100,
      [](auto& c) -> auto& { return c.engine.run.policy.failures_to_disable; });
  policy.Integer(
      "hold_after_start_reports",
      "No relative rule acts before so many reports, nor before 32. QK-Clip is absolute and does.", 0, 100000,
      [](auto& c) -> auto& { return c.engine.run.policy.hold_after_start_reports; });
}

}  // namespace gyrostat::config
