// Attention logits (the largest softmax input per head) above tau, and growing towards it.
//
// Absolute: valid from the first report, not touched by outliers elsewhere. Two findings at most are open for a run.
// *Excursion*: a head is over tau. It stays open while heads come back over tau within `quiet_reports`, because
// QK-Clip holds heads near tau and each overshoot is not news: information while a clip is seen at work (the ledger
// moves) or while it is short, warning when it lasts or stays above 1.5 tau, critical from 1,000 on or when it runs
// away above 1.5 tau. *Growth*: the maximum over all heads rises and is forecast to pass tau soon. Information, never
// more: healthy runs do it.
#pragma once

#include "detect/stateful.h"
#include "stats/growth.h"

namespace gyrostat::detect {

struct AttnLogitOptions {
  double tau = 100;                   // [1, 1e6]. Kimi K2's cap.
  double high_ratio = 1.5;            // Above this many tau a head is not held. (1, 100].
  uint32_t high_reports = 3;          // More than this many in a row above it: not an overshoot. [1, 1000].
  uint32_t lasting_reports = 3;       // Reports over tau that make a warning where no clip is seen. [1, 1000].
  double critical_level = 1000;       // arXiv 2309.14322 §3: the loss suffers from here on. Kimi K2: usually unstable.
  double lost_level = 10000;          // arXiv 2309.14322 §3: every run above it diverged.
  uint32_t quiet_reports = 64;        // In a row without a head over the line: the excursion is over. [1, 100000].
  uint32_t fit_reports = 64;          // Newest maxima that the growth is read from. [32, 256].
  double forecast_steps = 150;        // Growth is said when tau is nearer than this. [1, 1e6].
  double runaway_steps = 1000;        // A high head is critical when 1,000 is nearer than this. [1, 1e6].
  template <class Archive>
  void Fields(Archive& a) {
    a(tau, high_ratio, high_reports, lasting_reports, critical_level, lost_level, quiet_reports, fit_reports,
      forecast_steps, runaway_steps);
    if constexpr (Archive::kLoading)
      if (fit_reports < 32 || fit_reports > stats::kGrowthPointsMax) a.Fail();
  }
};

class AttnLogit : public Stateful<AttnLogit> {
 public:
  AttnLogit(const AttnLogitOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "attn_logit"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<AttnLogit>;
  static constexpr uint8_t kStateVersion = 1;
  // What one report shows.
  struct Look {
    float max = model::kAbsent;
    size_t worst = 0;         // Index of `max`.
    uint32_t over = 0;        // Heads above tau.
    uint32_t high = 0;        // Heads above high_ratio tau.
    uint32_t high_lasting = 0;  // Of them for more than high_reports in a row.
    uint32_t persistent = 0;  // Heads over tau in most recent reports.
  };
  struct Excursion {
    Excursion() {}  // Spelled out: clang 14 does not see a defaulted one inside the class.
    model::Finding finding;
    uint32_t reports_over = 0;      // With a head over tau.
    uint32_t reports_critical = 0;  // With a head at critical_level or more.
    uint32_t quiet = 0, quiet_high = 0;  // In a row without a head over tau, over high_ratio tau.
    model::Step last_over = 0, last_high = 0;
    float peak = 0;
    template <class Archive>
    void Fields(Archive& a) {
      a(finding, reports_over, reports_critical, quiet, quiet_high, last_over, last_high, peak);
    }
  };
  struct State {
    std::vector<uint16_t> high_run;  // Per head: reports in a row above high_ratio tau, saturating.
    std::vector<uint8_t> offences;  // Per head: up by 2 when over tau, down by 1 when not; 0..kOffencesMax.
    bool counting = false;          // Any of the two is not 0.
    uint64_t ledger_version = 0;
    uint32_t since_clip = UINT32_MAX;  // Reports since the ledger last moved.
    uint32_t over_since_clip = 0;      // Reports with a head over tau since then.
    std::vector<double> fit_steps, fit_logs;  // The newest maxima, oldest first.
    uint32_t growing = 0, not_growing = 0;    // Reports in a row that forecast tau soon, or not.
    std::optional<Excursion> excursion;
    std::optional<model::Finding> growth;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) {
      a(high_run, offences, counting, ledger_version, since_clip, over_since_clip, fit_steps, fit_logs, growing,
        not_growing, excursion, growth, next_key);
      if constexpr (Archive::kLoading)
        if (high_run.size() != offences.size() || fit_steps.size() != fit_logs.size()) a.Fail();
    }
  };

  Look Scan(std::span<const float> values);
  void CountHeads(std::span<const float> values, Look* look);
  std::optional<stats::GrowthFit> Fit(model::Step step, float max);
  void ObserveExcursion(const model::Report& report, const Look& look, const std::optional<stats::GrowthFit>& fit,
                        std::vector<model::Finding>* out);
  void ObserveGrowth(const model::Report& report, const Look& look, const std::optional<stats::GrowthFit>& fit,
                     std::vector<model::Finding>* out);
  model::Severity SeverityOf(const model::Report& report, const Look& look,
                             const std::optional<stats::GrowthFit>& fit) const;
  std::string Describe(const Look& look, const std::optional<stats::GrowthFit>& fit) const;
  bool EndIfQuiet(std::vector<model::Finding>* out);
  void Name(const Look& look, size_t size, model::Finding* finding) const;
  bool ClipSeen() const;
  State Fresh() const { return State(); }

  AttnLogitOptions options_;
  uint32_t layers_, heads_;
  State state_;
};

}  // namespace gyrostat::detect
