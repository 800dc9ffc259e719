#include "policy/intents.h"

#include <algorithm>
#include <utility>

#include "policy/words.h"

namespace gyrostat::policy {
namespace {

// Orders live 64 boundaries at most, and an intent that follows an ended one needs several: nothing older gets an ack.
constexpr size_t kEndedKept = 8;

// A refused client is asked again after 16 boundaries, then 32, ... 1024: not at every step, and not never.
constexpr uint64_t kRefusalPauseMin = 16;
constexpr uint32_t kRefusalDoublings = 6;

}  // namespace

void DelayTally::Add(model::Boundary delay) { ++counts_[std::min<model::Boundary>(delay, counts_.size() - 1)]; }

std::optional<double> DelayTally::Median() const {
  uint64_t total = 0;
  for (const uint32_t count : counts_) total += count;
  if (total == 0) return std::nullopt;
  const auto at = [this](uint64_t rank) {
    size_t delay = 0;
    for (uint64_t seen = counts_[0]; seen <= rank; seen += counts_[delay]) ++delay;
    return static_cast<double>(delay);
  };
  return (at((total - 1) / 2) + at(total / 2)) / 2;
}

void Intent::Touch(const model::LedgerDelta& applied, uint32_t layers, uint32_t heads) {
  touched.resize(size_t{layers} * heads, false);
  for (size_t i = 0; i < applied.size(); ++i)
    if (applied.layer[i] < layers && applied.head[i] < heads) {
      const size_t index = size_t{applied.layer[i]} * heads + applied.head[i];
      view.heads += !touched[index];
      touched[index] = true;
    }
}

Intent* IntentBook::Find(uint64_t number) {
  if (open_ && open_->number == number) return &*open_;
  for (Intent& intent : ended_)
    if (intent.number == number) return &intent;
  return nullptr;
}

std::optional<model::InterventionState> IntentBook::StateOf(uint64_t number) const {
  if (number == 0 || number > ration_.last()) return std::nullopt;
  if (open_ && open_->number == number) return open_->view.state;
  for (const Intent& intent : ended_)
    if (intent.number == number) return intent.view.state;
  return model::InterventionState::kJudged;
}

std::string IntentBook::OverBudget(RunTime now, const PolicyOptions& options) const {
  return ration_.OverBudget(now, options);
}

std::string IntentBook::HeldBack(RunTime now, const PolicyOptions& options) const {
  if (now < paused_until_) return why_paused_ + "; " + std::to_string(paused_until_ - now) + " more to wait";
  return ration_.HeldBack(now, options);
}

Intent& IntentBook::Open(const std::string& run, RunTime now, Intent intent) {
  intent.number = ration_.Take(now, Ration::Weight::kCounted);
  intent.view.id = run + "/" + std::to_string(intent.number);
  intent.view.kind = model::InterventionKind::kQkClip;
  intent.view.reason = intent.opening;
  intent.active_at = now;
  return open_.emplace(std::move(intent));
}

void IntentBook::End(model::InterventionState state, const std::string& sentence, RunTime now, uint64_t pause,
                     const std::string& why_pause) {
  open_->view.state = state;
  open_->view.reason = Joined(open_->opening, Joined(open_->verdict, sentence));
  if (now + pause > paused_until_) {
    paused_until_ = now + pause;
    why_paused_ = why_pause;
  }
  ended_.push_back(*std::move(open_));
  open_.reset();
  if (ended_.size() > kEndedKept) ended_.pop_front();
}

uint64_t IntentBook::NextRefusalPause() { return kRefusalPauseMin << std::min(refusals_++, kRefusalDoublings); }

}  // namespace gyrostat::policy
