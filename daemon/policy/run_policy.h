// What to do about a run: reports, findings and acks in; decisions, intents and orders out. Every answer has a reason.
//
// Rules: design.md §6, protocol.md §1, §5–7, §9. Here: modes, allow-lists, cool-down, budget, bounds, the QK-Clip
// planner on a mirror of the client's ledger, measures of all other kinds on a mirror of its registers, outcome and
// self-disabling. An order leaves only after the journal holds it (engine/).
//
// Pure: no clock, no randomness (ids are hashes of run, attempt and a counter). Not thread-safe: one per run, on its
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/archive.h"
#include "model/finding.h"
#include "model/intervention.h"
#include "model/report.h"
#include "policy/proposal.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"

namespace gyrostat::policy {

struct QkClipOptions {
  double tau = 100;  // [1, 1e6].
  model::ClipWhere where = model::ClipWhere::kRemote;
  model::ClipVariant variant = model::ClipVariant::kGroupMin;  // For grouped keys; mha needs none.
  uint32_t quiet_boundaries = 200;   // An intent closes after this many without an order. [1, 100000].
  uint32_t judged_boundaries = 50;   // Outcome is read this long after opening. [10, 10000].
  template <class Archive>
  void Fields(Archive& a) { a(tau, where, variant, quiet_boundaries, judged_boundaries); }
};

struct WarmupExtensionOptions {
  double stretch = 7;  // W' in units of the declared warm-up, where nobody names an end. [1.1, 8].
  template <class Archive>
  void Fields(Archive& a) { a(stretch); }
};
struct DeepnormAlphaOptions {
  uint32_t ramp = 50;  // Boundaries. [1, 200].
  template <class Archive>
  void Fields(Archive& a) { a(ramp); }
};
struct LrScaleOptions {
  double scale = 0.5;              // [0.01, 1].
  uint64_t for_boundaries = 1000;  // 0: for good. [0, 1e6].
  template <class Archive>
  void Fields(Archive& a) { a(scale, for_boundaries); }
};

// qk_clip and collect. (Not in the header: GCC 12 warns of a list of enums there, wrongly.)
std::vector<model::InterventionKind> AutomaticByDefault();

struct PolicyOptions {
  model::Mode mode = model::Mode::kObserve;
  std::vector<model::InterventionKind> automatic = AutomaticByDefault();  // What `act` may send unasked.
  QkClipOptions qk_clip;
  WarmupExtensionOptions warmup_extension;
  DeepnormAlphaOptions deepnorm_alpha;
  LrScaleOptions lr_scale;
  uint32_t budget_per_1000_steps = 20;      // Intents, of all kinds together. [1, 1000].
  uint32_t cooldown_boundaries = 1;         // Between the end of one intent and the next, of any kind. [0, 100000].
  uint32_t failures_to_disable = 2;         // Ineffective or harmful outcomes of a kind that disable it. [1, 100].
  uint32_t hold_after_start_reports = 0;    // No relative rule before this many reports; qk_clip is absolute.
  template <class Archive>
  void Fields(Archive& a) {
    a(mode, automatic, qk_clip, warmup_extension, deepnorm_alpha, lr_scale, budget_per_1000_steps,
      cooldown_boundaries, failures_to_disable, hold_after_start_reports);
  }
};

// The episode that is open, as the diagnosis of it says.
struct EpisodeNow {
  std::optional<model::Step> since = {};  // First step of the first mover; nothing: none is open.
  std::optional<model::InterventionKind> recommend = {};
  std::string headline = {};
};

// What a call produced, in order.
struct PolicyOutput {
  std::vector<model::Decision> decisions;
  std::vector<model::Intervention> changed;  // Whole new state of each intent that changed.
  std::vector<model::Order> orders;          // To send once journalled.
  std::vector<model::Finding> findings;      // What the policy itself reports (e.g. three expiries in a row).
  void Clear();
};

class RunPolicy {
 public:
  RunPolicy(std::string run, PolicyOptions options);
  ~RunPolicy();
  RunPolicy(RunPolicy&&) noexcept;
  RunPolicy& operator=(RunPolicy&&) noexcept;

  // A stream opened, again or anew. Settles what the hello's outcomes tell, takes its ledger as the truth, sends
  // again under its id what is unknown, unexpired and still wanted, loses what belonged to an older attempt.
  void OnHello(const model::Hello& hello, PolicyOutput* out);

  // What detectors said, begins and ends, of a report that OnReport is given next, or between reports. What is open and
  // recommends a kind other than qk_clip is answered by OnReport.
  void OnFindings(std::span<const model::Finding> said, const EpisodeNow& episode);

  // A new report, after detection. Only fresh evidence orders: a report re-sent after a reconnect (`newest_boundary` of
  // the attempt is further on than the loop delay allows, protocol.md §1.9) feeds the mirror, nothing else.
  void OnReport(const model::Report& report, model::Boundary newest_boundary, PolicyOutput* out);

  void OnAck(const model::Ack& ack, PolicyOutput* out);
  // The attempt ended (bye, or a newer attempt).
  void OnEnd(PolicyOutput* out);

  // A person asks for an intervention of any kind but qk_clip and collect. FAILED_PRECONDITION: not here or not now,
  // and why (in mode observe always). INVALID_ARGUMENT: out of bounds. Else it waits for approval, at the end of
  // `out->changed`.
  absl::Status Propose(const Proposal& proposal, PolicyOutput* out);
  // NOT_FOUND: no such intent. FAILED_PRECONDITION: it is not waiting for approval (the message says what it is).
  absl::Status Approve(const std::string& id, const std::string& author, const std::string& reason, PolicyOutput* out);
  absl::Status Reject(const std::string& id, const std::string& author, const std::string& reason, PolicyOutput* out);
  // What the new mode does not allow stops at once; an ack of what was sent before is still believed. Somebody's word
  // also ends a pause, and gives a kind that disabled itself another chance.
  void SetMode(model::Mode mode, const std::string& author, PolicyOutput* out);
  // New thresholds (config reload). The mode stays: options say how a run begins, SetMode how it goes on. What is open
  // under another tau, place or variant ends.
  void SetOptions(const PolicyOptions& options, PolicyOutput* out);

  model::Mode mode() const;
  double tau() const;
  const std::vector<std::string>& allow() const;
  // Open intents, and how many wait for a person.
  std::vector<model::Intervention> Open() const;
  uint32_t pending() const;
  // The mirror of the client's clip ledger.
  const remedy::ClipLedger& ledger() const;

  // Everything but the options: Load expects a policy that was made with those it was saved under, and then answers as
  // if nothing had happened.
  void Save(base::ByteWriter* out) const;
  bool Load(base::ByteReader* in);  // False on foreign bytes; the policy is then as new.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyrostat::policy
