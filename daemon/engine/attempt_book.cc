#include "engine/attempt_book.h"

#include <algorithm>

namespace gyrostat::engine {
namespace {

// Enough to recognise every job that can still be running under the name; older ones are strangers again.
constexpr size_t kSupersededMax = 64;
// A rival that floods must not flood the journal.
constexpr int64_t kRivalRecordMs = 1000;

}  // namespace

AttemptBook::Speaker AttemptBook::Who(const model::AttemptId& attempt) const {
  if (any() && attempt == current_) return Speaker::kCurrent;
  return std::ranges::find(superseded_, attempt) != superseded_.end() ? Speaker::kSuperseded : Speaker::kStranger;
}

void AttemptBook::Open(const model::AttemptId& attempt, uint32_t epoch, uint64_t first_sequence) {
  if (any()) superseded_.push_back(current_);
  if (superseded_.size() > kSupersededMax) superseded_.pop_front();
  dropped_before_ += DroppedNow();
  dropped_hot_ = dropped_unacked_ = missing_ = 0;
  current_ = attempt;
  ++attempts_;
  ended_ = false;
  epoch_ = epoch;
  last_sequence_ = first_sequence > 0 ? first_sequence - 1 : 0;
  newest_boundary_ = 0;
}

bool AttemptBook::HearRival(const model::AttemptId& attempt, int64_t now_ms) {
  if (rival_heard_ms_ && rival_ == attempt && now_ms - *rival_heard_ms_ < kRivalRecordMs) return false;
  rival_ = attempt;
  rival_heard_ms_ = now_ms;
  return true;
}

bool AttemptBook::DismissRival(const model::AttemptId& attempt) {
  if (!rival_heard_ms_ || rival_ != attempt) return false;
  rival_heard_ms_.reset();
  return true;
}

void AttemptBook::TakeReport(const model::Report& report) {
  missing_ += report.sequence - last_sequence_ - 1;
  last_sequence_ = report.sequence;
  dropped_hot_ = std::max(dropped_hot_, report.dropped_hot);
  dropped_unacked_ = std::max(dropped_unacked_, report.dropped_unacked);
  newest_boundary_ = std::max(newest_boundary_, report.boundary);
  ++reports_;
}

void AttemptBook::RaiseNewestBoundary(model::Boundary boundary) {
  newest_boundary_ = std::max(newest_boundary_, boundary);
}

uint64_t AttemptBook::DroppedNow() const { return std::max(dropped_hot_ + dropped_unacked_, missing_); }

}  // namespace gyrostat::engine
