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

// `get` returns the SpikeOptions of one of the two detectors.
template <class Get>
void AppendSpikeKeys(const char* prefix, Get get, std::vector<Key>* keys) {
  Section spike(prefix, keys);
  spike.Number(
      "enter_sigmas", "A value so far above its expected level begins a spike.", 3,
      100, [=](auto& c) -> auto& { return get(c).enter_sigmas; });
  spike.Number(
      "exit_sigmas", "Below this it is back; between the two it is not healed.", 1,
      100, [=](auto& c) -> auto& { return get(c).exit_sigmas; });
  spike.Number(
      "sigma_min", "The scale is never taken smaller than this, so that a flat past makes no alarm of a ripple.", 0,
      10, [=](auto& c) -> auto& { return get(c).sigma_min; });
  spike.Number(
      "gross_ratio", "At so many times the level even a short spike is a warning.", 1.01,
      1e6, [=](auto& c) -> auto& { return get(c).gross_ratio; });
  spike.Integer(
      "window_steps", "Past distances from the level that make the scale.", 32,
      4096, [=](auto& c) -> auto& { return get(c).window_steps; });
  spike.Integer(
      "level_steps", "Past values that make the expected level.", 4,
      256, [=](auto& c) -> auto& { return get(c).level_steps; });
  spike.Integer(
      "heal_records", "So many reports in a row below exit_sigmas: healed.", 1,
      100, [=](auto& c) -> auto& { return get(c).heal_records; });
  spike.Integer(
      "lasting_records", "So many reports above enter_sigmas: a warning.", 1,
      1000, [=](auto& c) -> auto& { return get(c).lasting_records; });
  spike.Integer(
      "unhealed_warning_records", "Not healed for so many reports: a warning.", 1,
      10000, [=](auto& c) -> auto& { return get(c).unhealed_warning_records; });
  spike.Integer(
      "unhealed_critical_records", "Not healed for so many reports: critical.", 1,
      100000, [=](auto& c) -> auto& { return get(c).unhealed_critical_records; });
  spike.Integer(
      "abandon_records", "After so many reports the new level counts as the normal one.", 1,
      1000000, [=](auto& c) -> auto& { return get(c).abandon_records; });
}

void AppendAttnLogitKeys(std::vector<Key>* keys) {
  Section logit("detect.attn_logit.", keys);
  logit.Number(
      "high_ratio", "A head above so many tau is not held by the clips.", 1.01, 100,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.high_ratio; });
  logit.Integer(
      "high_reports", "More than so many reports in a row above it: not an overshoot.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.high_reports; });
  logit.Integer(
      "lasting_reports", "A head over tau in so many reports, and no clip seen: a warning.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.lasting_reports; });
  logit.Number(
      "critical_level", "From this logit on the loss suffers.", 1, 1e9,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.critical_level; });
  logit.Number(
      "lost_level", "Runs above this logit diverge.", 1, 1e9,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.lost_level; });
  logit.Integer(
      "quiet_reports", "So many reports in a row without a head over the line: over.", 1, 100000,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.quiet_reports; });
  logit.Integer(
      "fit_reports", "Newest reports that the growth is read from.", 32, 256,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.fit_reports; });
  logit.Number(
      "forecast_steps", "Growth is said when tau is nearer than so many steps.", 1, 1e6,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.forecast_steps; });
  logit.Number(
      "runaway_steps", "A head that is not held is critical when critical_level is nearer than this.", 1, 1e6,
      [](auto& c) -> auto& { return c.engine.run.detect.attn_logit.runaway_steps; });
}

void AppendOtherDetectors(std::vector<Key>* keys) {
  Section nonfinite("detect.nonfinite.", keys);
  nonfinite.Integer(
      "lasting_reports", "NaN or Inf in so many reports in a row: critical.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.detect.nonfinite.lasting_reports; });
  nonfinite.Integer(
      "scaled_lasting_reports", "The same for gradients under a loss scale above 1, which falls meanwhile.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.detect.nonfinite.scaled_lasting_reports; });
  nonfinite.Integer(
      "heal_reports", "Finite again for so many reports in a row: over.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.detect.nonfinite.heal_reports; });

  Section score("detect.spike_score.", keys);
  score.Number(
      "info_percent", "Share of steps that are spikes, percent, from which it is said.", 0.001, 100,
      [](auto& c) -> auto& { return c.engine.run.detect.spike_score.info_percent; });
  score.Number(
      "warning_percent", "The same for a warning. OLMo 2 had 0.4 before its fixes and 0.03 after.", 0.001, 100,
      [](auto& c) -> auto& { return c.engine.run.detect.spike_score.warning_percent; });
  score.Integer(
      "evaluated_min", "Steps that must have been judged first.", 1, 1000000,
      [](auto& c) -> auto& { return c.engine.run.detect.spike_score.evaluated_min; });
  score.Integer(
      "spikes_min", "Spikes that must have been seen first.", 1, 1000000,
      [](auto& c) -> auto& { return c.engine.run.detect.spike_score.spikes_min; });

  Section silence("detect.silence.", keys);
  silence.Number(
      "step_times", "A run is silent after so many of its median step times without a report.", 2, 10000,
      [](auto& c) -> auto& { return c.engine.run.detect.silence.step_times; });
  silence.Integer(
      "silent_after_ms_min", "But never sooner than after so many milliseconds.", 1000, 3600000,
      [](auto& c) -> auto& { return c.engine.run.detect.silence.silent_after_ms_min; });
  silence.Integer(
      "silent_after_ms_max", "And at the latest after so many.", 1000, 86400000,
      [](auto& c) -> auto& { return c.engine.run.detect.silence.silent_after_ms_max; });
}

constexpr auto kLossSpike = [](auto& c) -> auto& { return c.engine.run.detect.loss_spike; };
constexpr auto kGradSpike = [](auto& c) -> auto& { return c.engine.run.detect.grad_spike; };

template <class Get>
void AppendSpikeOrders(const std::string& prefix, Get get, std::vector<Order>* orders) {
  orders->push_back({prefix + "exit_sigmas", prefix + "enter_sigmas",
                     [=](const Config& c) { return get(c).exit_sigmas <= get(c).enter_sigmas; }});
  orders->push_back({prefix + "unhealed_warning_records", prefix + "unhealed_critical_records", [=](const Config& c) {
                       return get(c).unhealed_warning_records <= get(c).unhealed_critical_records;
                     }});
  orders->push_back({prefix + "unhealed_critical_records", prefix + "abandon_records",
                     [=](const Config& c) { return get(c).unhealed_critical_records <= get(c).abandon_records; }});
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
  Section policy("policy.", keys);
  policy.Integer(
      "budget_per_1000_steps", "Interventions of one kind that a run may see in 1000 steps.", 1, 1000,
      [](auto& c) -> auto& { return c.engine.run.policy.budget_per_1000_steps; });
  policy.Integer(
      "cooldown_boundaries", "Step boundaries between the end of one intervention and the next of its kind.", 0,
      100000, [](auto& c) -> auto& { return c.engine.run.policy.cooldown_boundaries; });
  policy.Integer(
      "failures_to_disable", "So many ineffective or harmful outcomes of a kind disable it for the run.", 1, 100,
      [](auto& c) -> auto& { return c.engine.run.policy.failures_to_disable; });
  policy.Integer(
      "hold_after_start_reports", "No relative rule acts before so many reports. QK-Clip is absolute and does.", 0,
      100000, [](auto& c) -> auto& { return c.engine.run.policy.hold_after_start_reports; });
}

void AppendDetectKeys(std::vector<Key>* keys) {
  AppendSpikeKeys("detect.loss_spike.", kLossSpike, keys);
  AppendSpikeKeys("detect.grad_spike.", kGradSpike, keys);
  AppendAttnLogitKeys(keys);
  AppendOtherDetectors(keys);
}

void AppendDetectOrders(std::vector<Order>* orders) {
  AppendSpikeOrders("detect.loss_spike.", kLossSpike, orders);
  AppendSpikeOrders("detect.grad_spike.", kGradSpike, orders);
  orders->push_back({"detect.attn_logit.critical_level", "detect.attn_logit.lost_level", [](const Config& c) {
                       return c.engine.run.detect.attn_logit.critical_level <=
                              c.engine.run.detect.attn_logit.lost_level;
                     }});
  orders->push_back({"detect.spike_score.info_percent", "detect.spike_score.warning_percent", [](const Config& c) {
                       return c.engine.run.detect.spike_score.info_percent <=
                              c.engine.run.detect.spike_score.warning_percent;
                     }});
  orders->push_back({"detect.silence.silent_after_ms_min", "detect.silence.silent_after_ms_max", [](const Config& c) {
                       return c.engine.run.detect.silence.silent_after_ms_min <=
                              c.engine.run.detect.silence.silent_after_ms_max;
                     }});
}

}  // namespace gyrostat::config
