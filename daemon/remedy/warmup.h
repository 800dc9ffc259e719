// A longer warm-up, put on a learning-rate schedule that is already running: protocol.md §6, methods.md §7.
//
// The job's own schedule stays; a *ray* caps it: cap(b) = rate + slope (b - boundary), b counting boundaries. During
// the warm-up the ray is the line of the stretched warm-up, so the rate drops at once (measured: a chord from the
// current rate rescued 1 of 7 seeds, the stretch to 7 W 6 of 6). After it a *notch*: a factor that falls, then a ray up
// again. The rate is min(base, all caps) * lr_scale: never above the job's own, and repeats need no rule but min.
//
// Every rank evaluates the same rays from the boundary alone, in doubles, with nothing to contract: same bits
// everywhere. Pure; not thread-safe; only PlanWarmup's sentences and Add allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/archive.h"
#include "model/ids.h"
#include "remedy/schedule.h"

namespace gyrostat::remedy {

inline constexpr uint64_t kWarmupStretchDefault = 7;  // W' = 7 W ...
inline constexpr uint64_t kWarmupStretchMax = 8;      // ... and never beyond 8 W.

struct Ray {
  model::Boundary boundary = 0;  // Where it begins.
  double rate = 0;               // There. >= 0.
  double slope = 0;              // Per boundary. >= 0.
  model::Boundary until = 0;     // W': at it or later, the ray ends once it no longer lowers the rate.

  double Cap(model::Boundary at) const;
  // The same line in an attempt whose boundaries count `shift` more (less, where negative).
  Ray Shifted(int64_t shift) const;
  bool operator==(const Ray&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(boundary, rate, slope, until); }
};

// Multiplies the rate, from 1 at `boundary` linearly to `floor` `length` boundaries later; over from then on.
struct Fall {
  model::Boundary boundary = 0;
  uint32_t length = 0;  // 0: the ray after it drops at once.
  double floor = 1;     // (0, 1].
  uint32_t past = 0;    // Boundaries of it that had passed before this attempt's first; then `boundary` is 0.

  double Factor(model::Boundary at) const;
  bool HasEnded(model::Boundary at) const;
  // The same fall in an attempt whose boundaries count `shift` more (less, where negative).
  Fall Shifted(int64_t shift) const;
  bool operator==(const Fall&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(boundary, length, floor, past); }
};

struct WarmupExtension {
  Ray ray = {};
  std::optional<Fall> fall = {};  // Of a notch; the ray begins where it ends.
  template <class Archive>
  void Fields(Archive& a) { a(ray, fall); }
};

// Empty, or why an extension is out of bounds: numbers that are not finite or not in range, or a ray steeper than the
// job's own warm-up. `warmup` and `peak` as the job declares them; a client judges orders with it, before Add.
std::string CheckExtension(const WarmupExtension& extension, double peak, uint64_t warmup);

// What is in force on one job's learning rate. The same on every rank; part of the state digest and of the checkpoint.
class LrEnvelope {
 public:
  static constexpr size_t kRaysMax = 8;  // In force at once.

  // eta for the boundary whose optimizer step runs at `at`; at most `base`. NaN and what is not above 0 pass through.
  double Rate(double base, model::Boundary at) const;
  // eta / base of the reference group, which multiplies every group's rate: in (0, 1]; 1 where base is not above 0.
  double Multiplier(double base, model::Boundary at) const;

  // A register's compare-and-set (protocol.md §5): false, and nothing changed, unless `expected` is the version; every
  // write raises it. Add also says false where kRaysMax are in force.
  bool Add(const WarmupExtension& extension, uint64_t expected);
  // `scale` in (0, 1] from now up to and with `until` (0: for good).
  bool Scale(double scale, model::Boundary until, uint64_t expected);

  // Called at each boundary with the base rate of its step: forgets what has ended. True when something did; the
  // version stays, since every rank ends the same things at the same boundary.
  bool Advance(double base, model::Boundary at);

  // lr_scale at that boundary. (0, 1].
  double ScaleAt(model::Boundary at) const;

  // All of it in an attempt whose boundaries count `shift` more: after a restart from a checkpoint.
  void Shift(int64_t shift);
  // Of all that is in force; equal states hash equally on every machine.
  uint64_t hash() const;

  // The latest W' in force, as a boundary; nothing without a ray.
  std::optional<model::Boundary> WarmingUntil() const;
  uint64_t version() const { return version_; }
  const std::vector<Ray>& rays() const { return rays_; }
  bool idle() const { return rays_.empty() && falls_.empty() && scale_ == 1; }

  template <class Archive>
  void Fields(Archive& a) {
    a(version_, rays_, falls_, scale_, scale_until_);
    if constexpr (Archive::kLoading)
      if (!IsSound()) a.Fail();
  }

 private:
  bool IsSound() const;

  uint64_t version_ = 0;
  std::vector<Ray> rays_;    // At most kRaysMax.
  std::vector<Fall> falls_;  // At most as many.
  double scale_ = 1;
  model::Boundary scale_until_ = 0;  // 0: no end.
};

struct NotchOptions {
  double floor = 0.3;        // m0. (0, 1).
  uint32_t fall_steps = 50;  // At most; shorter where the warm-up leaves no room for it.
};

struct WarmupRequest {
  Schedule schedule = {};
  uint64_t step = 0;             // t: where the schedule stands ...
  model::Boundary boundary = 0;  // ... at this boundary, the first that the extension governs.
  double effective_rate = 0;     // As reported: caps and scale included.
  std::optional<uint64_t> end = {};  // W', a step. Default: 7 W, or one step before the total; of a notch, t + W.
  NotchOptions notch = {};
};

// The extension that answers the request given what is in force, or nothing and the sentence that says why not: no
// warm-up to extend, an end out of bounds (refused, never clamped), a repeat that ends no later than the last one, or a
// schedule that has fallen too far for a notch.
std::optional<WarmupExtension> PlanWarmup(const WarmupRequest& request, const LrEnvelope& now, std::string* why);

}  // namespace gyrostat::remedy
