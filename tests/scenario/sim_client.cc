#include "scenario/sim_client.h"

#include <algorithm>
#include <cmath>

namespace gyrostat::scenario {
namespace {

constexpr double kTicksPerNat = 1048576;  // protocol.md: a tick is 2^-20 nat.
constexpr size_t kRemembered = 64;        // Boundaries whose maxima and ledger the client still knows.

// Lambda of the forward + min(ln(S / tau), ln 10), in ticks.
int64_t Target(float max, double tau, int64_t ticks) {
  const double excess = std::min(std::log(static_cast<double>(max) / tau), std::log(10.0));
  return ticks + std::llround(excess * kTicksPerNat);
}

}  // namespace

SimClient::SimClient(const Script* script) : script_(script), spec_(script->run.spec), behaviour_(script->client) {
  Restart(0);
}

void SimClient::Restart(model::Step from, State state) {
  const std::map<uint32_t, model::RegisterReading> kept = registers_;
  ++attempts_;
  attempt_ = {};
  attempt_.bytes[0] = 0xa7;
  attempt_.bytes[15] = attempts_;
  epoch_ = 0;
  boundary_ = 0;
  sequence_ = 0;
  outcomes_.clear();
  local_tau_ = 0;
  Rollback(from);
  epoch_ = 0;
  if (state == State::kKept) registers_ = kept;
}

void SimClient::Rollback(model::Step from) {
  ++epoch_;
  next_step_ = from;
  ticks_.assign(size_t{spec_.layers} * spec_.heads, 0);
  version_ = 0;
  past_.clear();
  inbox_.clear();
  registers_.clear();
  local_clips_ = {};
}

double SimClient::nats(uint32_t layer, uint32_t head) const {
  return static_cast<double>(ticks_[Index(layer, head)]) / kTicksPerNat;
}

model::Hello SimClient::MakeHello() const {
  model::Hello hello;
  hello.run = "scenario";
  hello.attempt = attempt_;
  hello.epoch = epoch_;
  hello.boundary = boundary_ + 1;
  hello.ledger_version = version_;
  for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
    for (uint32_t head = 0; head < spec_.heads; ++head) {
      if (ticks_[Index(layer, head)] == 0) continue;
      hello.ledger.layer.push_back(layer);
      hello.ledger.head.push_back(head);
      hello.ledger.ticks.push_back(ticks_[Index(layer, head)]);
    }
  }
  for (const auto& [id, reading] : registers_) hello.registers.push_back(reading);
  hello.last_outcomes = outcomes_;
  hello.allow = script_->run.allow;
  hello.tau_min = script_->run.tau_min;
  hello.model = spec_;
  hello.attn_logit.kind = script_->run.kind;
  hello.attn_logit.scaled = hello.attn_logit.masked = true;
  hello.world_size = script_->run.world;
  hello.client_version = "scenario";
  return hello;
}

void SimClient::FillArray(const SignalLine& line, size_t at, model::Report* report) const {
  const auto shape = model::FindSignal(line.signal)->shape;
  const bool per_head = shape == model::Shape::kLayerHead || shape == model::Shape::kLayerOrLayerHead;
  const bool ranks = shape == model::Shape::kRankDigest;
  const uint32_t layers = ranks ? RankSlots(script_->run) : spec_.layers;
  const uint32_t heads = ranks ? model::kRankDigestFields : per_head ? spec_.heads : 1;
  std::vector<float>& array = report->MutableArray(line.signal);
  if (array.empty()) {
    array.assign(size_t{layers} * heads, model::kAbsent);
    for (uint32_t rank = 0; ranks && rank < layers; ++rank) array[size_t{rank} * heads] = static_cast<float>(rank);
  }
  for (uint32_t layer = 0; layer < layers; ++layer)
    for (uint32_t head = 0; head < heads; ++head)
      if (line.layer.value_or(layer) == layer && line.head.value_or(head) == head)
        array[size_t{layer} * heads + head] = static_cast<float>(line.values[at]);
}

model::Report SimClient::MakeReport(uint64_t at) {
  model::Report report;
  report.sequence = ++sequence_;
  report.boundary = ++boundary_;
  report.epoch = epoch_;
  report.step = next_step_++;
  report.ledger_version = version_;
  report.step_time_ms = static_cast<double>(script_->run.step_ms);
  report.attn_logit_kind = script_->run.kind;
  report.local_clips = std::move(local_clips_);
  local_clips_ = {};
  for (const SignalLine& line : script_->signals) {
    if (model::IsScalar(line.signal))
      report.SetScalar(line.signal, line.values[at]);
    else
      FillArray(line, at, &report);
  }
  MeasureLogits(&report);
  return report;
}

void SimClient::MeasureLogits(model::Report* report) {
  std::vector<float>& maxima = report->MutableArray(model::Signal::kAttnLogitMax);
  if (maxima.empty()) return;
  last_logit_ = 0;
  for (size_t i = 0; i < maxima.size(); ++i) {
    if (!std::isfinite(maxima[i]) || maxima[i] == model::kAbsent) continue;
    maxima[i] = static_cast<float>(maxima[i] * std::exp(-static_cast<double>(ticks_[i]) / kTicksPerNat));
    last_logit_ = std::max(last_logit_, maxima[i]);
  }
  peak_logit_ = std::max(peak_logit_, last_logit_);
  past_[boundary_] = {maxima, ticks_};
  if (past_.size() > kRemembered) past_.erase(past_.begin());
}

void SimClient::Take(const model::Order& order) {
  last_order_ = order;
  if (behaviour_.answer == scenario::Answer::kIgnore) return;
  const bool known = std::any_of(outcomes_.begin(), outcomes_.end(),
                                 [&order](const model::Ack& ack) { return ack.order_id == order.id; });
  if (!known) inbox_.push_back({order, boundary_ + behaviour_.delay});
}

void SimClient::TakeAgain() { inbox_.push_back({last_order_, boundary_ + behaviour_.delay}); }

// protocol.md §5: all of them, or none where one stands at another version. A step that is past is void too.
void SimClient::SetRegisters(const model::Order& order, model::Ack* ack) {
  ack->outcome = model::AckOutcome::kVoid;
  for (const model::RegisterSet& each : order.sets) {
    const auto it = registers_.find(each.id);
    if (each.expected_version == (it == registers_.end() ? 0 : it->second.version)) continue;
    ack->reason = "register " + std::to_string(each.id) + " stands at another version";
    return;
  }
  if (order.kind == model::InterventionKind::kSkipStep && order.sets[0].value <= static_cast<float>(boundary_)) {
    ack->reason = "the step is past";
    return;
  }
  for (const model::RegisterSet& each : order.sets) {
    model::RegisterReading& r = registers_[each.id];
    r = {.id = each.id, .from = r.version == 0 ? 1 : r.to, .to = each.value, .first = static_cast<int64_t>(boundary_),
         .ramp = order.ramp, .version = r.version + 1};
  }
  ack->outcome = model::AckOutcome::kApplied;
}

// What stands against an order here and now; empty: nothing.
std::string SimClient::WhyRefused(const model::Order& order) const {
  const RunLine& run = script_->run;
  if (behaviour_.answer == scenario::Answer::kRefuse) return "this job refuses everything";
  if (std::find(run.allow.begin(), run.allow.end(), Token(order.kind)) == run.allow.end())
    return std::string(Token(order.kind)) + " is not in the job's allow-list";
  if (run.world > 1) return "a job of more than one rank cannot agree on it";
  if (order.kind != model::InterventionKind::kQkClip) return {};
  if (order.tau < run.tau_min) return "tau is below the job's tau_min";
  if (order.where == model::ClipWhere::kLocal) return {};
  const auto past = past_.find(order.basis);
  if (past == past_.end()) return "the basis is not known here";
  for (const model::ClipEntry& entry : order.entries) {
    if (entry.layer >= spec_.layers || entry.head >= spec_.heads) return "no such head";
    const size_t i = Index(entry.layer, entry.head);
    const float max = past->second.maxima[i];
    if (max != entry.reported_max) return "the maximum is not the one that was reported";
    const int64_t target = Target(max, order.tau, past->second.ticks[i]);
    const double asked = static_cast<double>(entry.target_ticks - past->second.ticks[i]);
    const double right = static_cast<double>(target - past->second.ticks[i]);
    if (std::fabs(asked - right) > 0.005 * right + 2) return "the target is not the one that the report gives";
  }
  return {};
}

// delta = max(0, target - lambda); heads that share a factor (group_min, layer_gain) all take their largest.
void SimClient::Clip(const std::vector<model::ClipEntry>& entries, model::ClipVariant variant,
                     model::LedgerDelta* applied) {
  std::vector<int64_t> delta(ticks_.size(), 0);
  const bool whole_layer = variant == model::ClipVariant::kLayerGain;
  const uint32_t group = whole_layer ? spec_.heads : spec_.heads / spec_.KvHeads();
  for (const model::ClipEntry& entry : entries) {
    const int64_t missing = std::max<int64_t>(0, entry.target_ticks - ticks_[Index(entry.layer, entry.head)]);
    const bool whole_group = whole_layer || variant == model::ClipVariant::kGroupMin;
    const uint32_t first = whole_group ? entry.head / group * group : entry.head;
    const uint32_t end = whole_group ? first + group : entry.head + 1;
    for (uint32_t head = first; head < end; ++head) {
      int64_t& most = delta[Index(entry.layer, head)];
      most = std::max(most, missing);
    }
  }
  for (size_t i = 0; i < delta.size(); ++i) {
    if (delta[i] == 0) continue;
    ticks_[i] += delta[i];
    applied->layer.push_back(static_cast<uint32_t>(i) / spec_.heads);
    applied->head.push_back(static_cast<uint32_t>(i) % spec_.heads);
    applied->ticks.push_back(delta[i]);
  }
  if (applied->size() > 0) ++version_;
}

model::Ack SimClient::Answer(const model::Order& order) {
  model::Ack ack;
  ack.order_id = order.id;
  ack.boundary = boundary_;
  ack.step = next_step_ - 1;
  ack.ledger_version_before = ack.ledger_version_after = version_;
  const bool remote = order.where == model::ClipWhere::kRemote;
  if (order.attempt != attempt_ || order.epoch != epoch_) {
    ack.outcome = model::AckOutcome::kForeign;
    ack.reason = "of another attempt or epoch";
  } else if (remote && boundary_ > order.expires_boundary) {
    ack.outcome = model::AckOutcome::kExpired;
    ack.reason = "too late";
  } else if (ack.reason = WhyRefused(order); !ack.reason.empty()) {
    ack.outcome = model::AckOutcome::kRefused;
  } else if (order.kind != model::InterventionKind::kQkClip) {
    SetRegisters(order, &ack);
  } else if (!remote) {
    local_tau_ = order.tau;
    local_variant_ = order.variant;
    ack.outcome = model::AckOutcome::kApplied;
  } else {
    Clip(order.entries, order.variant, &ack.applied);
    ack.outcome = ack.applied.size() > 0 ? model::AckOutcome::kApplied : model::AckOutcome::kVoid;
    ack.ledger_version_after = version_;
    if (ack.outcome == model::AckOutcome::kVoid) ack.reason = "nothing was missing";
  }
  return ack;
}

void SimClient::ClipLocally() {
  const auto past = past_.find(boundary_);
  if (local_tau_ <= 0 || past == past_.end()) return;
  std::vector<model::ClipEntry> entries;
  for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
    for (uint32_t head = 0; head < spec_.heads; ++head) {
      const size_t i = Index(layer, head);
      const float max = past->second.maxima[i];
      if (std::isfinite(max) && static_cast<double>(max) > local_tau_)
        entries.push_back({layer, head, max, Target(max, local_tau_, past->second.ticks[i])});
    }
  }
  local_clips_.boundary = boundary_;
  local_clips_.ledger_version_before = version_;
  Clip(entries, local_variant_, &local_clips_.applied);
  local_clips_.ledger_version_after = version_;
}

std::vector<model::Ack> SimClient::Apply() {
  std::vector<model::Ack> acks;
  while (!inbox_.empty() && inbox_.front().due <= boundary_) {
    acks.push_back(Answer(inbox_.front().order));
    outcomes_.push_back(acks.back());
    if (outcomes_.size() > 256) outcomes_.erase(outcomes_.begin());
    inbox_.pop_front();
  }
  ClipLocally();
  return acks;
}

}  // namespace gyrostat::scenario
