#include "remedy/warmup.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "base/mix.h"

namespace gyrostat::remedy {
namespace {

using model::Boundary;

// Rounded sums may pass the slope of the declared warm-up by a hair, or miss the base at W' by one.
constexpr double kRoundingRoom = 1 + 1e-9;

std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string Steps(uint64_t steps) { return std::to_string(steps); }

bool InUnit(double value) { return value > 0 && value <= 1; }

bool HasEnded(const Ray& ray, double base, Boundary at) {
  return at >= ray.until && ray.Cap(at) * kRoundingRoom >= base;
}

double Steepest(double peak, uint64_t warmup) { return peak / static_cast<double>(warmup); }

// Where W' of a stretch may be. Empty: it may.
std::string CheckStretchEnd(const Schedule& schedule, uint64_t step, uint64_t end, uint64_t last) {
  if (end <= std::max(schedule.warmup, step))
    return "the new end of the warm-up is step " + Steps(end) + ", wanted one after step " +
           Steps(std::max(schedule.warmup, step));
  if (end > kWarmupStretchMax * schedule.warmup)
    return "the new end of the warm-up is step " + Steps(end) + ", wanted at most " +
           Steps(kWarmupStretchMax * schedule.warmup) + ", 8 times the declared one";
  if (schedule.total != 0 && end >= schedule.total)
    return "the new end of the warm-up is step " + Steps(end) + ", wanted one before the run's last, " +
           Steps(schedule.total);
  if (end <= last)
    return "the warm-up is stretched to step " + Steps(last) + " already, wanted an end after it, not step " +
           Steps(end);
  return {};
}

uint64_t DefaultStretchEnd(const Schedule& schedule) {
  const uint64_t end = kWarmupStretchDefault * schedule.warmup;
  return schedule.total == 0 ? end : std::min(end, schedule.total - 1);
}

std::optional<WarmupExtension> PlanStretch(const WarmupRequest& request, uint64_t last, std::string* why) {
  const Schedule& schedule = request.schedule;
  const uint64_t end = request.end.value_or(DefaultStretchEnd(schedule));
  if (*why = CheckStretchEnd(schedule, request.step, end, last); !why->empty()) return std::nullopt;
  const double top = BaseRate(schedule, end);
  WarmupExtension extension;
  Ray& ray = extension.ray;
  ray.boundary = request.boundary;
  ray.rate = std::min(request.effective_rate, top * static_cast<double>(request.step) / static_cast<double>(end));
  ray.slope = std::max(0.0, (top - ray.rate) / static_cast<double>(end - request.step));
  ray.until = request.boundary + (end - request.step);
  return extension;
}

std::optional<WarmupExtension> PlanNotch(const WarmupRequest& request, std::string* why) {
  const Schedule& schedule = request.schedule;
  const NotchOptions& notch = request.notch;
  const auto refuse = [why](std::string reason) {
    *why = std::move(reason);
    return std::nullopt;
  };
  if (!(notch.floor > 0 && notch.floor < 1))
    return refuse("the notch goes down to " + Text(notch.floor) + ", wanted a factor between 0 and 1");
  const uint64_t end = request.end.value_or(request.step + schedule.warmup);
  if (end <= request.step || end - request.step > kWarmupStretchMax * schedule.warmup)
    return refuse("the notch ends at step " + Steps(end) + ", wanted one after step " + Steps(request.step) +
                  " and within 8 declared warm-ups, " + Steps(kWarmupStretchMax * schedule.warmup) + " steps");
  if (schedule.total != 0 && end >= schedule.total)
    return refuse("the notch ends at step " + Steps(end) + ", wanted one before the run's last, " +
                  Steps(schedule.total));
  // The way up may not be steeper than the warm-up was: (1 - m0) W steps of it; what is left is for the fall.
  const auto rise = static_cast<uint64_t>(std::ceil((1 - notch.floor) * static_cast<double>(schedule.warmup)));
  if (end - request.step < rise)
    return refuse("the notch has " + Steps(end - request.step) + " steps, wanted at least " + Steps(rise) +
                  " to rise no steeper than the declared warm-up");
  const uint64_t fall = std::min<uint64_t>(notch.fall_steps, end - request.step - rise);
  const double top = BaseRate(schedule, end);
  WarmupExtension extension;
  extension.fall = Fall{request.boundary, static_cast<uint32_t>(fall), notch.floor};
  Ray& ray = extension.ray;
  ray.boundary = request.boundary + fall;
  ray.rate = notch.floor * std::min(request.effective_rate, BaseRate(schedule, request.step + fall));
  ray.slope = (top - ray.rate) / static_cast<double>(end - request.step - fall);
  ray.until = request.boundary + (end - request.step);
  if (ray.slope < 0)
    return refuse("the schedule falls below the notch by step " + Steps(end) + ": there is nothing to warm up to");
  return extension;
}

}  // namespace

double Ray::Cap(Boundary at) const {
  const double risen = slope * static_cast<double>(at - boundary);
  return rate + risen;
}

Ray Ray::Shifted(int64_t shift) const {
  Ray moved = *this;
  const auto back = shift < 0 ? static_cast<uint64_t>(-shift) : 0;
  if (back > boundary) {  // It begins before the attempt did.
    moved.rate = Cap(back);
    moved.boundary = 0;
    moved.until = until > back ? until - back : 1;
    return moved;
  }
  moved.boundary += static_cast<uint64_t>(shift);
  moved.until += static_cast<uint64_t>(shift);
  return moved;
}

double Fall::Factor(Boundary at) const {
  if (at < boundary || HasEnded(at)) return 1;  // Where it ends the ray has begun.
  const double part = static_cast<double>(at - boundary + past) / static_cast<double>(length);
  const double lost = (1 - floor) * part;
  return 1 - lost;
}

bool Fall::HasEnded(Boundary at) const { return at >= boundary && at - boundary + past >= length; }

Fall Fall::Shifted(int64_t shift) const {
  Fall moved = *this;
  const auto back = shift < 0 ? static_cast<uint64_t>(-shift) : 0;
  if (back <= boundary) {
    moved.boundary += static_cast<uint64_t>(shift);
    return moved;
  }
  moved.boundary = 0;
  moved.past = static_cast<uint32_t>(std::min<uint64_t>(length, past + (back - boundary)));
  return moved;
}

std::string CheckExtension(const WarmupExtension& extension, double peak, uint64_t warmup) {
  if (warmup == 0 || !std::isfinite(peak) || peak <= 0)
    return "the job declares no warm-up and peak, wanted both to judge an extension by";
  const Ray& ray = extension.ray;
  if (!std::isfinite(ray.rate) || ray.rate < 0 || ray.rate > peak)
    return "the ray begins at a rate of " + Text(ray.rate) + ", wanted between 0 and the peak, " + Text(peak);
  const double steepest = Steepest(peak, warmup);
  if (!std::isfinite(ray.slope) || ray.slope < 0 || ray.slope > steepest * kRoundingRoom)
    return "the ray rises by " + Text(ray.slope) + " a step, wanted between 0 and the declared warm-up's " +
           Text(steepest);
  const Boundary begin = extension.fall ? extension.fall->boundary : ray.boundary;
  if (ray.until <= ray.boundary || ray.until - begin > kWarmupStretchMax * warmup)
    return "the extension lasts " + Steps(ray.until > begin ? ray.until - begin : 0) + " steps, wanted 1 to " +
           Steps(kWarmupStretchMax * warmup) + ", 8 times the declared warm-up";
  if (!extension.fall) return {};
  if (!InUnit(extension.fall->floor))
    return "the notch goes down to " + Text(extension.fall->floor) + ", wanted a factor in (0, 1]";
  if (ray.boundary < begin || ray.boundary - begin != extension.fall->length)
    return "the ray of a notch begins at boundary " + Steps(ray.boundary) + ", wanted where the fall ends, " +
           Steps(begin + extension.fall->length);
  return {};
}

double LrEnvelope::Rate(double base, Boundary at) const {
  if (!(base > 0)) return base;
  double rate = base;
  for (const Fall& fall : falls_) rate = std::min(rate, base * fall.Factor(at));
  for (const Ray& ray : rays_)
    if (at >= ray.boundary && !HasEnded(ray, base, at)) rate = std::min(rate, ray.Cap(at));
  return rate * ScaleAt(at);
}

double LrEnvelope::ScaleAt(Boundary at) const { return scale_until_ == 0 || at <= scale_until_ ? scale_ : 1; }

double LrEnvelope::Multiplier(double base, Boundary at) const {
  if (!(base > 0) || !std::isfinite(base)) return 1;
  const double rate = Rate(base, at);
  return rate >= base ? 1 : rate / base;
}

bool LrEnvelope::Add(const WarmupExtension& extension, uint64_t expected) {
  if (expected != version_ || rays_.size() >= kRaysMax) return false;
  rays_.push_back(extension.ray);
  if (extension.fall) falls_.push_back(*extension.fall);
  ++version_;
  return true;
}

bool LrEnvelope::Scale(double scale, Boundary until, uint64_t expected) {
  if (expected != version_ || !InUnit(scale)) return false;
  scale_ = scale;
  scale_until_ = until;
  ++version_;
  return true;
}

bool LrEnvelope::Advance(double base, Boundary at) {
  const size_t before = rays_.size() + falls_.size();
  std::erase_if(rays_, [&](const Ray& ray) { return HasEnded(ray, base, at); });
  std::erase_if(falls_, [&](const Fall& fall) { return fall.HasEnded(at); });
  bool ended = rays_.size() + falls_.size() < before;
  if (scale_until_ != 0 && at >= scale_until_) {
    scale_ = 1;
    scale_until_ = 0;
    ended = true;
  }
  return ended;
}

void LrEnvelope::Shift(int64_t shift) {
  for (Ray& ray : rays_) ray = ray.Shifted(shift);
  for (Fall& fall : falls_) fall = fall.Shifted(shift);
  if (scale_until_ == 0) return;
  const int64_t until = static_cast<int64_t>(scale_until_) + shift;
  scale_until_ = until > 0 ? static_cast<uint64_t>(until) : 0;
  if (until <= 0) scale_ = 1;  // It was over.
}

uint64_t LrEnvelope::hash() const {
  uint64_t h = base::Mix(version_, rays_.size() << 8 | falls_.size());
  for (const Ray& ray : rays_) {
    h = base::Mix(base::Mix(h, ray.boundary), ray.until);
    h = base::Mix(base::Mix(h, std::bit_cast<uint64_t>(ray.rate)), std::bit_cast<uint64_t>(ray.slope));
  }
  for (const Fall& fall : falls_) {
    h = base::Mix(base::Mix(h, fall.boundary), uint64_t{fall.length} << 32 | fall.past);
    h = base::Mix(h, std::bit_cast<uint64_t>(fall.floor));
  }
  return base::Mix(base::Mix(h, std::bit_cast<uint64_t>(scale_)), scale_until_);
}

std::optional<Boundary> LrEnvelope::WarmingUntil() const {
  std::optional<Boundary> latest;
  for (const Ray& ray : rays_) latest = std::max(latest.value_or(0), ray.until);
  return latest;
}

bool LrEnvelope::IsSound() const {
  for (const Ray& ray : rays_)
    if (!std::isfinite(ray.rate) || ray.rate < 0 || !std::isfinite(ray.slope) || ray.slope < 0 ||
        ray.until <= ray.boundary)
      return false;
  for (const Fall& fall : falls_)
    if (!InUnit(fall.floor) || fall.past > fall.length) return false;
  return rays_.size() <= kRaysMax && falls_.size() <= kRaysMax && InUnit(scale_);
}

std::optional<WarmupExtension> PlanWarmup(const WarmupRequest& request, const LrEnvelope& now, std::string* why) {
  const Schedule& schedule = request.schedule;
  *why = CheckSchedule(schedule);
  if (!why->empty()) return std::nullopt;
  if (schedule.warmup == 0) {
    *why = "the schedule has no warm-up to extend";
    return std::nullopt;
  }
  if (!std::isfinite(request.effective_rate) || request.effective_rate < 0) {
    *why = "the learning rate is " + Text(request.effective_rate) + ", wanted a finite number";
    return std::nullopt;
  }
  WarmupRequest unscaled = request;  // The scale is applied to what the rays give, so it may not be in them.
  unscaled.effective_rate /= now.ScaleAt(request.boundary);
  // A warm-up that was stretched before is stretched again from where it stands.
  uint64_t last = 0;
  if (const auto until = now.WarmingUntil(); until && *until > request.boundary)
    last = request.step + (*until - request.boundary);
  std::optional<WarmupExtension> extension =
      request.step < std::max(schedule.warmup, last) ? PlanStretch(unscaled, last, why) : PlanNotch(unscaled, why);
  if (!extension) return std::nullopt;
  *why = CheckExtension(*extension, schedule.peak, schedule.warmup);
  return why->empty() ? extension : std::nullopt;
}

}  // namespace gyrostat::remedy
