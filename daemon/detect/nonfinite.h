// NaN and Inf: which signal, layer and head showed them first, and what preceded it.
//
// Absolute: valid from the first report. Signals that turn non-finite in the same report are one finding, named after
// the one nearest to the cause; what follows within a few reports joins it, what follows later makes its own. -Inf as
// an attention maximum is not one: it is the maximum over no key at all. A gradient norm that overflows under a
// dynamic loss scale is the scaler at work: information, unless it lasts.
#pragma once

#include "detect/stateful.h"

namespace gyrostat::detect {

struct NonfiniteOptions {
  uint32_t lasting_reports = 3;          // In a row: from here on critical. [1, 1000].
  uint32_t scaled_lasting_reports = 20;  // The same for gradients alone while a loss scale above 1 may fall. [1, 1000].
  uint32_t heal_reports = 3;             // Finite again for so many in a row: over. [1, 1000].
  template <class Archive>
  void Fields(Archive& a) { a(lasting_reports, scaled_lasting_reports, heal_reports); }
};

class NonfiniteDetector : public Stateful<NonfiniteDetector> {
 public:
  explicit NonfiniteDetector(const NonfiniteOptions& options, const model::ModelSpec& spec);

  std::string_view name() const override { return "nonfinite"; }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override;
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override;

 private:
  friend class Stateful<NonfiniteDetector>;
  static constexpr uint8_t kStateVersion = 1;
  // One finding and the signals it speaks for.
  struct Episode {
    model::Finding finding;
    uint64_t signals = 0;      // Bit per signal number.
    uint32_t age = 0;          // Reports since it began.
    uint32_t run = 0;          // Reports in a row with any of them non-finite.
    uint32_t quiet = 0;        // Reports in a row that measured some of them and found all finite.
    uint32_t reports = 0;      // Reports with any of them non-finite, in all.
    model::Step last_bad = 0;
    template <class Archive>
    void Fields(Archive& a) { a(finding, signals, age, run, quiet, reports, last_bad); }
  };
  // What the report before looked like: the evidence.
  struct Before {
    double loss = 0, grad_norm = 0;
    float hidden_absmax = 0, attn_logit_max = 0;
    bool has_loss = false, has_grad_norm = false, has_hidden = false, has_attn = false;
    template <class Archive>
    void Fields(Archive& a) {
      a(loss, grad_norm, hidden_absmax, attn_logit_max, has_loss, has_grad_norm, has_hidden, has_attn);
    }
  };
  struct State {
    std::vector<Episode> open;
    Before before;
    uint64_t next_key = 1;
    template <class Archive>
    void Fields(Archive& a) { a(open, before, next_key); }
  };

  struct Seen {
    uint64_t bad = 0, measured = 0;  // Bit per signal number.
  };
  Seen Look(const model::Report& report) const;
  void Begin(const model::Report& report, uint64_t signals, std::vector<model::Finding>* out);
  void Escalate(const model::Report& report, Episode* episode, std::vector<model::Finding>* out);
  // False once it is over.
  bool Continue(const model::Report& report, const Seen& seen, Episode* episode, std::vector<model::Finding>* out);
  model::Severity SeverityOf(const Episode& episode, const model::Report& report) const;
  // Sets layer and head of the finding from a place in an array, and says it in words.
  std::string Place(model::Signal signal, size_t size, size_t at, model::Finding* finding) const;
  void Remember(const model::Report& report);
  std::string Evidence() const;
  State Fresh() const { return State(); }

  NonfiniteOptions options_;
  uint32_t layers_, heads_;
  State state_;
};

}  // namespace gyrostat::detect
