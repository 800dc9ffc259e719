// A training run that never trains: reports with the shapes and habits of real ones, from a seed.
//
// Used by gyrostat-loadgen, by end-to-end tests and by benches. The same options and orders give the same reports, bit
// for bit. The clip ledger here is a restatement of protocol.md §1 of its own, so that a test of the daemon does not
// check remedy/ against itself. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyrostat/v1/report.pb.h"

namespace gyrostat::testing {

enum class Scenario {
  kCalm,       // Falling loss, steady norms, logits near 8.
  kSpike,      // As calm; at step 150 six steps of tripled loss and twentyfold gradient norm, then it heals.
  kRunaway,    // One head in eight grows 5 % a step without bound; the loss suffers once logits pass 200.
  kNonfinite,  // As calm; from step 150 the loss is NaN and one head reports infinity.
  kStrained,   // As calm, in fp16: the stream grows 1 % a step up to half of the range, branches, LN inputs and spike
               // scores are reported too, the client drops a report in ten, and the loss climbs from step 150 on.
};
std::optional<Scenario> ScenarioOf(const std::string& name);  // calm spike runaway nonfinite strained

struct SyntheticOptions {
  std::string run = "load-0";
  std::string attempt;  // 16 bytes.
  uint32_t layers = 4, heads = 8, kv_heads = 0;
  Scenario scenario = Scenario::kCalm;
  uint64_t seed = 1;
  std::vector<std::string> allow;
};

class SyntheticRun {
 public:
  explicit SyntheticRun(SyntheticOptions options);

  // The first message of a stream that starts at boundary 0.
  v1::Hello MakeHello() const;

  // The next report: boundary and sequence rise by one, the step is the boundary. Overwrites `*out` and keeps its
  // memory.
  void NextReport(v1::Report* out);

  // Applies a clip order before the next report, as a client would, and says what became of it. Orders of other kinds,
  // attempts or epochs are answered with FOREIGN or REFUSED and a sentence.
  v1::Ack Obey(const v1::Order& order);
  // REFUSED: this run leaves clipping to the daemon.
  v1::Ack Obey(const v1::LocalClip& order) const;

  uint64_t reports() const { return sequence_; }
  float peak_logit() const { return peak_logit_; }   // Largest finite maximum reported so far.
  float last_logit() const { return last_logit_; }   // Largest finite maximum of the newest report.

 private:
  v1::Ack NewAck(const std::string& order_id) const;
  float LogitMax(uint32_t layer, uint32_t head) const;
  void FillScalars(double overload, v1::Report* out) const;
  void FillArrays(v1::Report* out);
  void FillStrain(v1::Report* out);

  SyntheticOptions options_;
  uint64_t sequence_ = 0;
  int64_t step_ = 0;
  uint64_t ledger_version_ = 0;
  std::vector<int64_t> lambda_ticks_;  // Layer-major.
  std::vector<float> logits_, layer_values_;
  float peak_logit_ = 0, last_logit_ = 0;
};

}  // namespace gyrostat::testing
