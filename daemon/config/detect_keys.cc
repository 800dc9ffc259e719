#include "config/detect_keys.h"

#include <string>
#include <utility>

#include "config/key_types.h"
#include "detect/catalog.h"

namespace gyrostat::config {
namespace {

using detect::DetectOptions;
using model::Severity;

struct Declared {
  std::vector<Key> keys;
  std::vector<Order> orders;
};

// What every detector has. `name` is that of the catalogue.
void DeclareVoice(const std::string& name, std::vector<Key>* keys) {
  const size_t at = detect::DetectorIndex(name);
  const std::string prefix = "detect." + name + ".";
  keys->push_back(ChoiceKey<bool>(
      (prefix + "enabled").c_str(), "Whether it judges at all: false ends what it has open, and it recommends nothing.",
      {{"true", true}, {"false", false}},
      [at](auto& c) -> auto& { return c.engine.run.detect.voices[at].enabled; }, Change::kReload));
  keys->push_back(ChoiceKey<Severity>(
      (prefix + "severity_max").c_str(), "Its findings are never said as severer than this.",
      {{"info", Severity::kInfo}, {"warning", Severity::kWarning}, {"critical", Severity::kCritical}},
      [at](auto& c) -> auto& { return c.engine.run.detect.voices[at].severity_max; }, Change::kReload));
}

// The keys of one detector, as members of its options.
template <class Options>
class Detector {
 public:
  Detector(std::string name, Options DetectOptions::*options, Declared* out)
      : prefix_("detect." + name + "."), options_(options), out_(out) {
    DeclareVoice(name, &out->keys);
  }

  template <class T>
  void Integer(const char* name, const char* description, int64_t min, int64_t max, T Options::*field) {
    out_->keys.push_back(
        IntegerKey((prefix_ + name).c_str(), description, min, max, Get(field), Change::kReload));
  }
  void Number(const char* name, const char* description, double min, double max, double Options::*field) {
    out_->keys.push_back(
        NumberKey((prefix_ + name).c_str(), description, min, max, Get(field), Change::kReload));
  }
  template <class T>
  void AtMost(const char* name, T Options::*field, const char* limit, T Options::*limit_field) {
    out_->orders.push_back({prefix_ + name, prefix_ + limit, [get = Get(field), most = Get(limit_field)](
                                                                 const Config& c) { return get(c) <= most(c); }});
  }

 private:
  template <class T>
  auto Get(T Options::*field) const {
    return [options = options_, field](auto& c) -> auto& { return c.engine.run.detect.*options.*field; };
  }

  const std::string prefix_;
  Options DetectOptions::*const options_;
  Declared* const out_;
};

void DeclareSpike(const char* name, detect::SpikeOptions DetectOptions::*options, Declared* out) {
  using O = detect::SpikeOptions;
  Detector d(name, options, out);
  d.Number("enter_sigmas", "A value so far above its expected level begins a spike.", 3, 100, &O::enter_sigmas);
  d.Number("exit_sigmas", "Below this it is back; between the two it is not healed.", 1, 100, &O::exit_sigmas);
  d.Number("sigma_min", "The scale is never taken smaller than this, so that a flat past makes no alarm of a ripple.",
           0, 10, &O::sigma_min);
  d.Number("gross_ratio", "At so many times the level even a short spike is a warning.", 1.01, 1e6, &O::gross_ratio);
  d.Integer("window_steps", "Past distances from the level that make the scale.", 32, 4096, &O::window_steps);
  d.Integer("level_steps", "Past values that make the expected level.", 4, 256, &O::level_steps);
  d.Integer("heal_records", "So many reports in a row below exit_sigmas: healed.", 1, 100, &O::heal_records);
  d.Integer("lasting_records", "So many reports above enter_sigmas: a warning.", 1, 1000, &O::lasting_records);
  d.Integer("unhealed_warning_records", "Not healed for so many reports: a warning.", 1, 10000,
            &O::unhealed_warning_records);
  d.Integer("unhealed_critical_records", "Not healed for so many reports: critical.", 1, 100000,
            &O::unhealed_critical_records);
  d.Integer("abandon_records", "After so many reports the new level counts as the normal one.", 1, 1000000,
            &O::abandon_records);
  d.AtMost("exit_sigmas", &O::exit_sigmas, "enter_sigmas", &O::enter_sigmas);
  d.AtMost("unhealed_warning_records", &O::unhealed_warning_records, "unhealed_critical_records",
           &O::unhealed_critical_records);
  d.AtMost("unhealed_critical_records", &O::unhealed_critical_records, "abandon_records", &O::abandon_records);
}

void DeclareAttnLogit(Declared* out) {
  using O = detect::AttnLogitOptions;
  Detector d("attn_logit", &DetectOptions::attn_logit, out);
  d.Number("high_ratio", "A head above so many tau is not held by the clips.", 1.01, 100, &O::high_ratio);
  d.Integer("high_reports", "More than so many reports in a row above it: not an overshoot.", 1, 1000,
            &O::high_reports);
  d.Integer("lasting_reports", "A head over tau in so many reports, and no clip seen: a warning.", 1, 1000,
            &O::lasting_reports);
  d.Number("critical_level", "From this logit on the loss suffers.", 1, 1e9, &O::critical_level);
  d.Number("lost_level", "Runs above this logit diverge.", 1, 1e9, &O::lost_level);
  d.Integer("quiet_reports", "So many reports in a row without a head over the line: over.", 1, 100000,
            &O::quiet_reports);
  d.Integer("fit_reports", "Newest reports that the growth is read from.", 32, 256, &O::fit_reports);
  d.Number("forecast_steps", "Growth is said when tau is nearer than so many steps.", 1, 1e6, &O::forecast_steps);
  d.Number("runaway_steps", "A head that is not held is critical when critical_level is nearer than this.", 1, 1e6,
           &O::runaway_steps);
  d.AtMost("critical_level", &O::critical_level, "lost_level", &O::lost_level);
}

void DeclareNonfinite(Declared* out) {
  using O = detect::NonfiniteOptions;
  Detector d("nonfinite", &DetectOptions::nonfinite, out);
  d.Integer("lasting_reports", "NaN or Inf in so many reports in a row: critical.", 1, 1000, &O::lasting_reports);
  d.Integer("scaled_lasting_reports", "The same for gradients under a loss scale above 1, which falls meanwhile.", 1,
            1000, &O::scaled_lasting_reports);
  d.Integer("heal_reports", "Finite again for so many reports in a row: over.", 1, 1000, &O::heal_reports);
}

void DeclareSpikeScore(Declared* out) {
  using O = detect::SpikeScoreLevelOptions;
  Detector d("spike_score", &DetectOptions::spike_score, out);
  d.Number("info_percent", "Share of steps that are spikes, percent, from which it is said.", 0.001, 100,
           &O::info_percent);
  d.Number("warning_percent", "The same for a warning. OLMo 2 had 0.4 before its fixes and 0.03 after.", 0.001, 100,
           &O::warning_percent);
  d.Integer("evaluated_min", "Steps that must have been judged first.", 1, 1000000, &O::evaluated_min);
  d.Integer("spikes_min", "Spikes that must have been seen first.", 1, 1000000, &O::spikes_min);
  d.AtMost("info_percent", &O::info_percent, "warning_percent", &O::warning_percent);
}

void DeclareDivergence(Declared* out) {
  using O = detect::DivergenceOptions;
  Detector d("divergence", &DetectOptions::divergence, out);
  d.Integer("short_steps", "Losses in the short level, a median.", 4, 64, &O::short_steps);
  d.Number("short_deviations", "It counts so many standard errors above its lowest.", 4, 100, &O::short_deviations);
  d.Number("short_share", "And by this share of the lowest.", 1e-6, 10, &O::short_share);
  d.Integer("long_steps", "Losses in the long level.", 4, 1024, &O::long_steps);
  d.Number("long_deviations", "Standard errors for the long level.", 3, 100, &O::long_deviations);
  d.Number("long_share", "And the share of the lowest.", 1e-6, 10, &O::long_share);
  d.Number("excess_min", "No smaller climb counts, nats.", 0, 100, &O::excess_min);
  d.Integer("hold_records", "So many reports in a row over a limit before anything is said.", 1, 1000,
            &O::hold_records);
  d.Number("critical_evidence", "So many limits' worth of climb, summed over reports: critical.", 1, 10000,
           &O::critical_evidence);
  d.Number("shift_share", "This share of the climb within a few reports makes it a shift.", 0.01, 1, &O::shift_share);
  d.Integer("shift_info_records", "A shift is told when it has lasted so many reports.", 1, 100,
            &O::shift_info_records);
  d.Integer("shift_warning_records", "One that has not come back after so many: a warning.", 1, 100000,
            &O::shift_warning_records);
  d.Integer("shift_abandon_records", "After so many its level counts as the normal one.", 1, 1000000,
            &O::shift_abandon_records);
  d.Integer("heal_records", "So many reports in a row below half the limits: back.", 1, 1000, &O::heal_records);
  d.AtMost("short_steps", &O::short_steps, "long_steps", &O::long_steps);
  d.AtMost("shift_info_records", &O::shift_info_records, "shift_warning_records", &O::shift_warning_records);
  d.AtMost("shift_warning_records", &O::shift_warning_records, "shift_abandon_records", &O::shift_abandon_records);
}

void DeclareGradGrowth(Declared* out) {
  using O = detect::GradGrowthOptions;
  Detector d("grad_growth", &DetectOptions::grad_growth, out);
  d.Integer("window_steps", "Gradient norms in the level, a median.", 8, 1024, &O::window_steps);
  d.Number("deviations", "It counts so many standard errors above its lowest.", 3, 100, &O::deviations);
  d.Number("info_ratio", "Times the lowest level from which it is said.", 1.01, 1e6, &O::info_ratio);
  d.Number("warning_ratio", "And that is a warning.", 1.01, 1e6, &O::warning_ratio);
  d.Number("layer_ratio", "The same for one layer alone, as information.", 1.01, 1e6, &O::layer_ratio);
  d.Integer("hold_reports", "So many reports in a row before anything is said.", 1, 10000, &O::hold_reports);
  d.Integer("settle_reports", "Levels count from here on, where no warm-up is declared.", 0, 1000000,
            &O::settle_reports);
  d.AtMost("info_ratio", &O::info_ratio, "warning_ratio", &O::warning_ratio);
}

void DeclareGradRoughness(Declared* out) {
  using O = detect::GradRoughnessOptions;
  Detector d("grad_roughness", &DetectOptions::grad_roughness, out);
  d.Integer("window_steps", "Reports that the roughness is read from.", 8, 1024, &O::window_steps);
  d.Number("difference_max", "A step of the log norm counts for no more than this, nats.", 0.01, 100,
           &O::difference_max);
  d.Number("info_roughness", "Deviation of the log norm from step to step, nats, from which it is said.", 0.01, 100,
           &O::info_roughness);
  d.Number("warning_roughness", "And that is a warning.", 0.01, 100, &O::warning_roughness);
  d.Number("end_roughness", "At or below this a block is smooth again.", 0.01, 100, &O::end_roughness);
  d.Number("total_ratio", "The global norm is rough at so many times the lowest roughness it had.", 1.01, 1e6,
           &O::total_ratio);
  d.Number("total_roughness_min", "And from so much on, nats: no ratio counts below.", 0.01, 100,
           &O::total_roughness_min);
  d.Number("total_roughness", "Or from so much on whatever it had, over window_steps.", 0.01, 100, &O::total_roughness);
  d.Number("total_roughness_short", "The same over total_short_steps.", 0.01, 100, &O::total_roughness_short);
  d.Integer("total_short_steps", "Reports that sudden roughness is read from.", 8, 1024, &O::total_short_steps);
  d.Integer("total_long_steps", "Reports that the lowest roughness is taken of.", 8, 4096, &O::total_long_steps);
  d.AtMost("total_short_steps", &O::total_short_steps, "window_steps", &O::window_steps);
  d.AtMost("window_steps", &O::window_steps, "total_long_steps", &O::total_long_steps);
  d.AtMost("end_roughness", &O::end_roughness, "info_roughness", &O::info_roughness);
  d.AtMost("info_roughness", &O::info_roughness, "warning_roughness", &O::warning_roughness);
}

void DeclareLogZ(Declared* out) {
  using O = detect::LogZOptions;
  Detector d("log_z", &DetectOptions::log_z, out);
  d.Integer("window_steps", "Values in the level, a median.", 8, 1024, &O::window_steps);
  d.Number("drift_nats", "So far above its lowest level it is said.", 0.01, 1e6, &O::drift_nats);
  d.Number("deviations", "And by so many standard errors.", 3, 100, &O::deviations);
  d.Number("level_nats", "A drift above this size is a warning; 0: where the compute type rounds by half a nat.", 0,
           1e9, &O::level_nats);
  d.Integer("hold_reports", "So many reports in a row before anything is said.", 1, 10000, &O::hold_reports);
}

void DeclareUpdateRatio(Declared* out) {
  using O = detect::UpdateRatioOptions;
  Detector d("update_ratio", &DetectOptions::update_ratio, out);
  d.Integer("window_steps", "Past updates of a layer that it is compared with.", 32, 1024, &O::window_steps);
  d.Number("deviations", "An update so many deviations above their median counts.", 3, 100, &O::deviations);
  d.Number("ratio", "And by so many times.", 1.01, 1e6, &O::ratio);
  d.Number("sigma_min", "The deviation is never taken smaller than this, nats.", 0, 10, &O::sigma_min);
  d.Integer("lasting_reports", "So many reports in a row: a warning.", 1, 1000, &O::lasting_reports);
  d.Number("layers_share", "This share of the layers at once, at least 2: a warning.", 0.001, 1, &O::layers_share);
  d.Integer("heal_reports", "So many usual reports in a row: over.", 1, 1000, &O::heal_reports);
  d.Integer("abandon_reports", "After so many the new size counts as the normal one.", 1, 1000000,
            &O::abandon_reports);
}

void DeclareAdamEps(Declared* out) {
  using O = detect::AdamEpsOptions;
  Detector d("adam_eps", &DetectOptions::adam_eps, out);
  d.Number("eps", "The optimizer's epsilon.", 1e-15, 1, &O::eps);
  d.Number("layer_parameters", "Weights in a layer; 0: 12 times the hidden size squared.", 0, 1e15,
           &O::layer_parameters);
  d.Number("info_ratio", "RMS of a gradient over epsilon below which it is said.", 1e-6, 1e6, &O::info_ratio);
  d.Number("warning_ratio", "And that is a warning.", 1e-6, 1e6, &O::warning_ratio);
  d.Integer("hold_reports", "So many reports in a row before anything is said.", 1, 100000, &O::hold_reports);
  d.AtMost("warning_ratio", &O::warning_ratio, "info_ratio", &O::info_ratio);
}

void DeclareLossScale(Declared* out) {
  using O = detect::LossScaleOptions;
  Detector d("loss_scale", &DetectOptions::loss_scale, out);
  d.Number("scale_min", "At or below this scale nothing is left to cut.", 1e-9, 1e9, &O::scale_min);
  d.Integer("cuts_in_a_row", "So many cuts in a row: critical.", 2, 1000, &O::cuts_in_a_row);
  d.Integer("window_steps", "Steps in which halvings are counted.", 8, 1024, &O::window_steps);
  d.Number("halvings", "More than so many in all, net: a warning.", 1, 64, &O::halvings);
  d.Integer("settled_reports", "So many reports without a cut: the search at the start is over.", 1, 100000,
            &O::settled_reports);
  d.Integer("slope_reports", "Reports in one of the three levels that show a slow fall.", 32, 4096,
            &O::slope_reports);
}

void DeclareAttnEntropy(Declared* out) {
  using O = detect::AttnEntropyOptions;
  Detector d("attn_entropy", &DetectOptions::attn_entropy, out);
  d.Number("entropy_min_nats", "A head below this mean row entropy has collapsed.", 1e-6, 100, &O::entropy_min_nats);
  d.Number("fall_ratio", "If it has stood at so many times that before.", 1, 1000, &O::fall_ratio);
  d.Integer("hold_reports", "So many reports in a row.", 1, 1000, &O::hold_reports);
  d.Number("heads_share", "This share of the heads, at least 2: a warning.", 0.001, 1, &O::heads_share);
  d.Integer("quiet_reports", "So many reports in a row without a collapsed head: over.", 1, 100000,
            &O::quiet_reports);
}

void DeclareGradProfile(Declared* out) {
  using O = detect::GradProfileOptions;
  Detector d("grad_profile", &DetectOptions::grad_profile, out);
  d.Number("low_ratio", "Last block's gradient over the first's that is said during a post-norm warm-up.", 1.01, 1e6,
           &O::low_ratio);
  d.Number("low_per_layer", "Or this times the layers, if that is more.", 0.01, 1e6, &O::low_per_layer);
  d.Number("high_per_layer", "This times the layers is a warning.", 0.01, 1e6, &O::high_per_layer);
  d.Integer("high_reports", "After so many reports in a row above it.", 1, 1000, &O::high_reports);
  d.Integer("dead_reports", "And critical after so many.", 1, 100000, &O::dead_reports);
  d.Number("slope_min", "Other placements: change of the slope over depth that counts, nats a layer.", 1e-6, 100,
           &O::slope_min);
  d.Number("info_ratio", "And from end to end by so many times.", 1.01, 1e9, &O::info_ratio);
  d.Number("warning_ratio", "By so many it is a warning.", 1.01, 1e9, &O::warning_ratio);
  d.Integer("slope_reports", "So many reports in a row.", 1, 10000, &O::slope_reports);
  d.AtMost("low_per_layer", &O::low_per_layer, "high_per_layer", &O::high_per_layer);
  d.AtMost("high_reports", &O::high_reports, "dead_reports", &O::dead_reports);
  d.AtMost("info_ratio", &O::info_ratio, "warning_ratio", &O::warning_ratio);
}

void DeclareLnInput(Declared* out) {
  using O = detect::LnInputOptions;
  Detector d("ln_input", &DetectOptions::ln_input, out);
  d.Number("growth_ratio", "Growth within 10 reports of the warm-up that is said.", 1.01, 1000, &O::growth_ratio);
  d.Integer("growth_reports", "So many reports in a row.", 1, 1000, &O::growth_reports);
  d.Number("level_ratio", "Times the RMS of a fresh model: a warning.", 1.01, 1e6, &O::level_ratio);
  d.Integer("level_reports", "So many reports in a row.", 1, 1000, &O::level_reports);
}

void DeclareDepthProfile(Declared* out) {
  using O = detect::DepthProfileOptions;
  Detector d("depth_profile", &DetectOptions::depth_profile, out);
  d.Integer("window_reports", "Reports in one profile.", 8, 1024, &O::window_reports);
  d.Integer("hold_windows", "So many profiles in a row that contradict the placement.", 1, 100, &O::hold_windows);
  d.Number("decided_nats", "Evidence that tells exponential growth from linear.", 0.01, 1000, &O::decided_nats);
  d.Number("flat_info_ratio", "Post-norm: ratio from end to end, in mean squares, that is said.", 1.01, 1e9,
           &O::flat_info_ratio);
  d.Number("info_ratio", "Others: exponential growth from end to end that is said.", 1.01, 1e12, &O::info_ratio);
  d.Number("warning_ratio", "And that is a warning; post-norm: from its square root on.", 1.01, 1e12,
           &O::warning_ratio);
  d.Number("rise_info", "Pre-norm: nats a layer by which 8 profiles became steeper that are said.", 1e-6, 100,
           &O::rise_info);
  d.Number("rise_warning", "And that are a warning.", 1e-6, 100, &O::rise_warning);
  d.AtMost("info_ratio", &O::info_ratio, "warning_ratio", &O::warning_ratio);
  d.AtMost("rise_info", &O::rise_info, "rise_warning", &O::rise_warning);
}

void DeclareHeadroom(Declared* out) {
  using O = detect::HeadroomOptions;
  Detector d("headroom", &DetectOptions::headroom, out);
  d.Number("warning_share", "Share of fp16's range that the largest hidden state may take: a warning.", 0.001, 1,
           &O::warning_share);
  d.Number("critical_share", "And critical.", 0.001, 1, &O::critical_share);
  d.Number("forecast_share", "A forecast alone warns from this share on.", 0.0001, 1, &O::forecast_share);
  d.Number("horizon_steps", "When overflow is nearer than so many steps.", 1, 1e6, &O::horizon_steps);
  d.Number("near_steps", "From warning_share on, nearer than so many steps is critical.", 1, 1e6, &O::near_steps);
  d.Integer("fit_reports", "Newest reports that the growth is read from.", 32, 256, &O::fit_reports);
  d.Integer("level_reports", "So many reports in a row over a level.", 1, 1000, &O::level_reports);
  d.Integer("forecast_reports", "So many in a row that forecast an overflow.", 1, 1000, &O::forecast_reports);
  d.Number("eps_info", "A norm's eps over the mean square of its input that is said.", 1e-6, 1e6, &O::eps_info);
  d.Number("eps_warning", "And that is a warning.", 1e-6, 1e6, &O::eps_warning);
  d.Integer("eps_reports", "So many reports in a row.", 1, 10000, &O::eps_reports);
  d.AtMost("forecast_share", &O::forecast_share, "warning_share", &O::warning_share);
  d.AtMost("warning_share", &O::warning_share, "critical_share", &O::critical_share);
  d.AtMost("near_steps", &O::near_steps, "horizon_steps", &O::horizon_steps);
  d.AtMost("eps_info", &O::eps_info, "eps_warning", &O::eps_warning);
}

void DeclareDeadDepth(Declared* out) {
  using O = detect::DeadDepthOptions;
  Detector d("dead_depth", &DetectOptions::dead_depth, out);
  d.Number("dead_ratio", "A layer that adds less than this share of the stream's RMS does not write.", 1e-9, 0.999,
           &O::dead_ratio);
  d.Integer("dead_reports", "So many reports in a row.", 1, 60000, &O::dead_reports);
  d.Number("warning_share", "This share of the layers, at least 2: a warning.", 0.001, 1, &O::warning_share);
}

void DeclareWarmup(Declared* out) {
  using O = detect::WarmupOptions;
  Detector d("warmup", &DetectOptions::warmup, out);
  d.Number("plateau_share", "A loss that stands above this share of a model's that knows nothing is a plateau.", 0.01,
           0.999, &O::plateau_share);
  d.Number("still_share", "Two levels 64 reports apart that differ by less stand still.", 0.0001, 0.999,
           &O::still_share);
  d.Integer("plateau_reports", "So many reports in a row: a warning.", 1, 10000, &O::plateau_reports);
  d.Integer("critical_reports", "And critical.", 1, 1000000, &O::critical_reports);
  d.Number("ratio", "Last gradient over the first that a plateau has, where gradients of layers are reported.", 1.01,
           1e6, &O::ratio);
  d.Number("ramp_share", "Climb of the loss while the rate still rises, share of the lowest.", 0.001, 100,
           &O::ramp_share);
  d.Number("ramp_nats", "And at least so many nats.", 0.001, 100, &O::ramp_nats);
  d.Integer("ramp_reports", "So many reports in a row: a warning.", 1, 10000, &O::ramp_reports);
  d.AtMost("plateau_reports", &O::plateau_reports, "critical_reports", &O::critical_reports);
}

void DeclareInstrument(Declared* out) {
  using O = detect::InstrumentOptions;
  Detector d("instrument", &DetectOptions::instrument, out);
  d.Number("sum_slack", "Layers' gradient norms may exceed the whole by this share: numbers are rounded.", 0, 1,
           &O::sum_slack);
  d.Number("triangle_slack", "The stream may break the triangle inequality by this share.", 0, 1,
           &O::triangle_slack);
  d.Number("flat_share", "A profile that varies less over depth is constant.", 1e-6, 1, &O::flat_share);
  d.Integer("wrong_reports", "So many reports in a row that cannot be right.", 1, 1000, &O::wrong_reports);
  d.Integer("stuck_reports", "So many for what only repeats.", 1, 1000, &O::stuck_reports);
  d.Integer("placement_reports", "So many before a placement is called wrong.", 1, 100000, &O::placement_reports);
}

void DeclareRankOutlier(Declared* out) {
  using O = detect::RankOutlierOptions;
  Detector d("rank_outlier", &DetectOptions::rank_outlier, out);
  d.Number("far_deviations", "A rank so many deviations from the median over ranks is far.", 3, 100,
           &O::far_deviations);
  d.Number("loss_floor", "The deviation of losses is at least this share of their median.", 1e-6, 10, &O::loss_floor);
  d.Number("grad_floor", "That of log gradient norms at least this, nats.", 1e-6, 10, &O::grad_floor);
  d.Integer("offences", "A far report counts 2, a usual one takes 1 away; so many: a warning.", 2, 200,
            &O::offences);
  d.Number("slow_ratio", "A step time above so many medians is slow.", 1.01, 1000, &O::slow_ratio);
  d.Number("slow_ms_min", "And so many milliseconds above it: less holds nobody up.", 0, 1e6, &O::slow_ms_min);
  d.Integer("slow_offences", "As offences, for step times: said as information.", 2, 200, &O::slow_offences);
  d.Integer("quiet_reports", "So many reports in a row without one: over.", 1, 10000, &O::quiet_reports);
}

void DeclareSilence(Declared* out) {
  using O = detect::SilenceOptions;
  Detector d("silence", &DetectOptions::silence, out);
  d.Number("step_times", "A run is silent after so many of its median step times without a report.", 2, 10000,
           &O::step_times);
  d.Integer("silent_after_ms_min", "But never sooner than after so many milliseconds.", 1000, 3600000,
            &O::silent_after_ms_min);
  d.Integer("silent_after_ms_max", "And at the latest after so many.", 1000, 86400000, &O::silent_after_ms_max);
  d.AtMost("silent_after_ms_min", &O::silent_after_ms_min, "silent_after_ms_max", &O::silent_after_ms_max);
}

// In the order of the catalogue.
Declared Declare() {
  Declared out;
  DeclareNonfinite(&out);
  DeclareSpike("loss_spike", &DetectOptions::loss_spike, &out);
  DeclareSpike("grad_spike", &DetectOptions::grad_spike, &out);
  DeclareSpikeScore(&out);
  DeclareAttnLogit(&out);
  DeclareDivergence(&out);
  DeclareGradGrowth(&out);
  DeclareGradRoughness(&out);
  DeclareLogZ(&out);
  DeclareUpdateRatio(&out);
  DeclareAdamEps(&out);
  DeclareLossScale(&out);
  DeclareAttnEntropy(&out);
  DeclareGradProfile(&out);
  DeclareLnInput(&out);
  DeclareDepthProfile(&out);
  DeclareHeadroom(&out);
  DeclareDeadDepth(&out);
  DeclareWarmup(&out);
  DeclareInstrument(&out);
  DeclareRankOutlier(&out);
  DeclareSilence(&out);
  return out;
}

}  // namespace

void AppendDetectKeys(std::vector<Key>* keys) {
  Declared declared = Declare();
  for (Key& key : declared.keys) keys->push_back(std::move(key));
}

void AppendDetectOrders(std::vector<Order>* orders) {
  Declared declared = Declare();
  for (Order& order : declared.orders) orders->push_back(std::move(order));
}

}  // namespace gyrostat::config
