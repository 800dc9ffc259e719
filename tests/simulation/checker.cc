#include "simulation/checker.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gyrostat::simulation {
namespace {

using client::Proposal;
using client::ProposalKind;

std::string At(uint32_t rank, model::Boundary b) {
  return "rank " + std::to_string(rank) + ", boundary " + std::to_string(b) + ": ";
}

}  // namespace

StateView ViewOf(const client::Agreement& rank, float alpha, double rate) {
  StateView view{.attempt = rank.attempt(), .epoch = rank.epoch(), .local_tau = rank.local().tau,
                 .local_version = rank.local_version(), .alpha = alpha, .rate = rate, .unsure = rank.unsure()};
  for (uint32_t layer = 0; layer < rank.ledger().layers(); ++layer)
    for (uint32_t head = 0; head < rank.ledger().heads(); ++head)
      view.ledger.push_back(rank.ledger().At(layer, head));
  for (const model::RegisterReading& each : rank.registers().file().Saved())
    view.registers[each.id] = {each.from, each.to, each.first, each.ramp, each.version};
  return view;
}

void Tally::Add(const Tally& o) {
  boundaries += o.boundaries, attempts += o.attempts, epochs += o.epochs, unsure += o.unsure, applied += o.applied;
  local += o.local, refused += o.refused, voided += o.voided, held += o.held, foreign += o.foreign;
  registers += o.registers, acks_applied += o.acks_applied, acks_expired += o.acks_expired;
  acks_refused += o.acks_refused, acks_failed += o.acks_failed, acks_other += o.acks_other;
  joins += o.joins, newcomers += o.newcomers, behind += o.behind, joined_unsure += o.joined_unsure;
  reports += o.reports, sums += o.sums, odd_reports += o.odd_reports;
  at_the_edge += o.at_the_edge, alphas += o.alphas, rays += o.rays, scales += o.scales, skips += o.skips;
}

std::string Tally::ToString() const {
  char text[900];
  const auto n = [](uint64_t x) { return static_cast<unsigned long long>(x); };
  std::snprintf(text, sizeof(text),
                "%llu boundaries in %llu attempts and %llu more epochs, %llu UNSURE; %llu times joined again, with "
                "%llu new ranks, %llu behind, %llu UNSURE; %llu reports of all ranks, %llu with sums, %llu with "
                "something not finite; orders in R: %llu applied, "
                "%llu void, %llu refused, %llu held, %llu foreign; %llu register sets (%llu alpha, %llu ray, %llu "
                "scale, %llu skip), %llu local clips; acks: %llu "
                "applied (%llu at their last boundary), %llu expired, %llu refused, %llu failed, %llu other",
                n(boundaries), n(attempts), n(epochs), n(unsure), n(joins), n(newcomers),
                n(behind), n(joined_unsure), n(reports), n(sums), n(odd_reports), n(applied),
                n(voided), n(refused), n(held),
                n(foreign), n(registers), n(alphas), n(rays), n(scales), n(skips),
                n(local), n(acks_applied), n(at_the_edge), n(acks_expired), n(acks_refused),
                n(acks_failed), n(acks_other));
  return text;
}

void Checker::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void Checker::BeginAttempt(const model::AttemptId& attempt, const StateView& begin, const RegisterTruth& registers) {
  ++tally.attempts;
  attempt_ = attempt;
  rounds_.clear();
  epochs_.clear();
  failed_.clear();
  apply_failed_.clear();
  truth_.assign(plan_->ranks(), begin);
  for (StateView& each : truth_) each.registers = registers.registers;
  register_truth_.assign(plan_->ranks(), registers);
  diverged_.assign(plan_->ranks(), false);
  must_load_.assign(plan_->ranks(), false);
  epoch_begins_ = joined_at_ = 1;
}

void Checker::OnNewEpoch(uint32_t rank, model::Boundary after, const StateView& begin,
                         const RegisterTruth& registers) {
  epochs_[{rank, after + 1}] = {begin, registers};
  if (rank == 0) ++tally.epochs;
}

void Checker::OnOrder(const model::Order& order, bool approved) {
  orders_[order.id] = {order.expires_boundary, order.epoch, order.attempt, approved,
                       order.where == model::ClipWhere::kLocal};
  tags_[client::OrderTag::Of(order.id)] = order.id;
}

void Checker::OnFill(uint32_t rank, model::Boundary b, const FillView& fill) {
  Round& round = rounds_[b];
  if (round.fills.contains(rank)) return Violate(At(rank, b) + "I6: two R for one boundary");
  if (rank == 0 && fill.proposal != nullptr) round.proposal = *fill.proposal;
  round.measured.resize(plan_->head_count(), model::kAbsent);
  for (size_t h = 0; h < round.measured.size(); ++h) {
    float& held = round.measured[h];
    const float value = fill.said.maxima[h];
    if (std::isnan(held) || std::isnan(value) || value > 3e38f)
      held = std::nanf("");
    else
      held = std::max(held, value);
  }
  round.usable &= fill.usable;
  round.fills[rank] = fill;
  round.fills[rank].proposal = nullptr;
  if (round.fills.size() < world()) return;
  Complete(b);
  round.complete = true;
}

bool Checker::AllEqual(const Round& round) const {
  return std::all_of(round.after.begin(), round.after.end(),
                     [&round](const StateView& each) { return each == round.after[0]; });
}

void Checker::Complete(model::Boundary b) {
  ++tally.boundaries;
  Round& round = rounds_[b];
  if (epochs_.contains({0, b})) epoch_begins_ = b;
  for (const auto& [r, fill] : round.fills) {
    EnterEpoch(r, b);
    const auto at = static_cast<int64_t>(b);
    const double rate = register_truth_[r].Rate(fill.base, at);
    // Rounded otherwise; that the ranks' own are equal bit by bit is asked where states are.
    truth_[r].rate = std::abs(rate - fill.state.rate) <= 1e-9 * rate ? fill.state.rate : rate;
    register_truth_[r].Passed(fill.base, at);
  }
  round.must_load = std::find(must_load_.begin(), must_load_.end(), true) != must_load_.end();
  round.lambda = truth_[0].ledger;
  if (b > joined_at_) Decide(b, &round);
  for (const auto& [r, fill] : round.fills) {
    truth_[r].alpha = fill.state.alpha;
    CompareState(r, b, fill.state, truth_[r]);
  }
  round.after = truth_;
  CompareWeights(b, round);
}

void Checker::EnterEpoch(uint32_t rank, model::Boundary b) {
  const auto epoch = epochs_.find({rank, b});
  if (epoch == epochs_.end()) return;
  truth_[rank] = epoch->second.state;
  register_truth_[rank] = epoch->second.registers;
  truth_[rank].registers = register_truth_[rank].registers;
  must_load_[rank] = false;
}

void Checker::Decide(model::Boundary b, Round* round) {
  const auto before = rounds_.find(b - 1);
  if (before == rounds_.end()) return;
  const Round& of = before->second;
  const StateView& one = truth_[first_ = round->fills.begin()->first];
  const bool ready = !of.must_load && std::none_of(of.fills.begin(), of.fills.end(),
                                                   [](const auto& each) { return each.second.not_ready; });
  const bool open = AllEqual(of) && ready;
  const bool same_history = of.after[0].epoch == one.epoch;
  if (of.proposal && !open) ++tally.held;
  if (of.proposal && open && !same_history) ++tally.foreign;
  Effect effect;
  if (open && same_history) effect = EffectOf(b, of, one);
  for (const auto& [r, fill] : round->fills) {
    const bool lost = failed_.contains({r, b - 1});
    const bool broke = effect.acts && apply_failed_.contains({r, b});
    if (lost || broke) {
      if (!truth_[r].unsure) ++tally.unsure;
      truth_[r].unsure = true;
      diverged_[r] = true;
    } else if (effect.acts) {
      Move(r, b, of, effect);
    }
  }
  if (effect.acts && of.proposal) CheckExpiry(b, *of.proposal);
  round->acted = effect.acts;
}

void Checker::Move(uint32_t rank, model::Boundary b, const Round& of, const Effect& effect) {
  StateView& truth = truth_[rank];
  truth.ledger = effect.ledger;
  if (effect.sets_local) truth.local_tau = static_cast<double>(of.proposal->tau), ++truth.local_version;
  if (!effect.sets_registers) return;
  register_truth_[rank].Apply(*of.proposal, b);
  truth.registers = register_truth_[rank].registers;
}

void Checker::OnSaved(model::Boundary b, const client::RestoredState& state) {
  const model::LedgerDelta& ledger = state.ledger;
  std::vector<remedy::Ticks> dense(plan_->head_count(), 0);
  for (size_t i = 0; i < ledger.size(); ++i) dense[ledger.layer[i] * plan_->heads + ledger.head[i]] = ledger.ticks[i];
  if (rounds_[b].after.empty() || rounds_[b].after[0].ledger != dense)
    Violate("I8: the state saved after boundary " + std::to_string(b) + " is not its ledger");
  if (state.boundary != b || !register_truth_[0].IsIn(state, b))
    Violate("I8: the state saved after boundary " + std::to_string(b) + " is not its registers and envelope");
}

Checker::Effect Checker::EffectOf(model::Boundary b, const Round& of, const StateView& state) {
  Effect effect;
  effect.ledger = state.ledger;
  if (of.proposal) {
    const Proposal& p = *of.proposal;
    if (p.kind == ProposalKind::kClip)
      DecideClip(b, p, &effect, state);
    else if (p.intervention == model::InterventionKind::kQkClip)
      DecideLocalRegister(p, state, &effect);
    else
      DecideRegisters(b, p, &effect);
  }
  if (state.local_tau > 0 && !effect.sets_local) AddLocal(of, state, &effect);
  return effect;
}

bool Checker::AddTargets(model::Boundary put_in, model::Boundary b, const Proposal& p,
                         std::vector<remedy::Ticks>* targets) const {
  const bool grouped = plan_->kv_heads != plan_->heads;
  const auto variant = grouped ? model::ClipVariant::kGroupMin : model::ClipVariant::kMha;
  if (!(p.tau > 0) || static_cast<double>(p.tau) < settings_->tau_min || p.variant != variant || p.split != 0.5f ||
      p.intervention != model::InterventionKind::kQkClip || p.entries.empty())
    return false;
  for (size_t i = 0; i < p.entries.size(); ++i) {
    const client::ProposalEntry& e = p.entries[i];
    if (e.what >= plan_->head_count() || (i > 0 && e.what <= p.entries[i - 1].what)) return false;
    if (e.stamp > put_in || put_in - e.stamp < epoch_begins_ || b - (put_in - e.stamp) >= 64) return false;
    const auto basis = rounds_.find(put_in - e.stamp);
    if (basis == rounds_.end() || !basis->second.usable) return false;
    const float s = basis->second.measured[e.what];
    if (!std::isfinite(s) || !(s > p.tau)) return false;
    const remedy::Ticks excess =
        std::min<remedy::Ticks>(remedy::LnTicks(static_cast<double>(s) / static_cast<double>(p.tau)), 2414435);
    if (static_cast<float>(excess) != e.value) return false;
    (*targets)[e.what] = std::max((*targets)[e.what], basis->second.lambda[e.what] + excess);
  }
  return true;
}

std::vector<remedy::Ticks> Checker::Charged(const std::vector<remedy::Ticks>& now,
                                            const std::vector<remedy::Ticks>& targets) const {
  std::vector<remedy::Ticks> after = now;
  const uint32_t group = plan_->heads / plan_->kv_heads;
  for (size_t first = 0; first < now.size(); first += group) {
    remedy::Ticks most = 0;
    for (size_t h = first; h < first + group; ++h) most = std::max(most, targets[h] - now[h]);
    for (size_t h = first; h < first + group; ++h) after[h] += most;
  }
  return after;
}

void Checker::DecideClip(model::Boundary b, const Proposal& p, Effect* effect, const StateView& state) {
  std::vector<remedy::Ticks> targets(plan_->head_count(), 0);
  if (!AddTargets(b - 1, b, p, &targets)) {
    ++tally.refused;
    return;
  }
  effect->ledger = Charged(state.ledger, targets);
  effect->acts = effect->ledger != state.ledger;
  ++(effect->acts ? tally.applied : tally.voided);
}

// Both sources of targets join by max before any group is charged.
void Checker::AddLocal(const Round& of, const StateView& state, Effect* effect) {
  if (!of.usable) return;
  std::vector<remedy::Ticks> targets(plan_->head_count(), 0);
  for (size_t h = 0; h < targets.size(); ++h) {
    const float s = of.measured[h];
    if (!std::isfinite(s) || !(static_cast<double>(s) > state.local_tau)) continue;
    targets[h] = of.lambda[h] + std::min<remedy::Ticks>(
                                    remedy::LnTicks(static_cast<double>(s) / state.local_tau), 2414435);
  }
  const std::vector<remedy::Ticks> with = Charged(state.ledger, targets);
  if (with == state.ledger) return;
  tally.local += effect->acts ? 0 : 1;
  effect->acts = true;
  for (size_t h = 0; h < with.size(); ++h) effect->ledger[h] = std::max(effect->ledger[h], with[h]);
}

void Checker::DecideLocalRegister(const Proposal& p, const StateView& state, Effect* effect) {
  const bool grouped = plan_->kv_heads != plan_->heads;
  const bool right = (p.tau == 0 || static_cast<double>(p.tau) >= settings_->tau_min) && p.split == 0.5f &&
                     p.variant == (grouped ? model::ClipVariant::kGroupMin : model::ClipVariant::kMha) &&
                     p.entries.size() == 1 && p.entries[0].what == 0 && p.entries[0].value == p.tau;
  if (!right) ++tally.refused;
  effect->acts = effect->sets_local = right && p.entries[0].stamp == state.local_version;
  if (right && !effect->sets_local) ++tally.voided;
  if (effect->acts) ++tally.registers;
}

void Checker::DecideRegisters(model::Boundary b, const Proposal& p, Effect* effect) {
  // All ranks that may act stand where the first does.
  switch (register_truth_[first_].Judge(*plan_, p, b)) {
    case RegisterTruth::Verdict::kRefuse:
      ++tally.refused;
      return;
    case RegisterTruth::Verdict::kVoid:
      ++tally.voided;
      return;
    case RegisterTruth::Verdict::kApply:
      break;
  }
  effect->acts = effect->sets_registers = true;
  ++tally.registers;
  tally.alphas += p.intervention == model::InterventionKind::kDeepnormAlpha;
  tally.rays += p.intervention == model::InterventionKind::kWarmupExtension;
  tally.scales += p.intervention == model::InterventionKind::kLrScale;
  tally.skips += p.intervention == model::InterventionKind::kSkipStep;
}

void Checker::CheckExpiry(model::Boundary b, const Proposal& p) {
  const auto tag = tags_.find(p.tag);
  if (tag == tags_.end()) return Violate("I4: an order that nobody gave was applied at boundary " + std::to_string(b));
  const Known& order = orders_[tag->second];
  if (!order.endless && b > order.expires)
    Violate("I4: applied at boundary " + std::to_string(b) + ", after its last, " + std::to_string(order.expires));
  if (order.epoch != truth_[first_].epoch || order.attempt != attempt_)
    Violate("I4: an order of another history was applied");
  if (!order.approved) Violate("I4: an order was applied whose intent nobody had approved");
}

void Checker::CompareState(uint32_t rank, model::Boundary b, const StateView& seen, const StateView& wanted) {
  if (seen == wanted) return;
  std::string what = At(rank, b);
  if (seen.attempt != wanted.attempt) what += "another attempt";
  if (seen.epoch != wanted.epoch) what += "another epoch";
  for (size_t h = 0; h < wanted.ledger.size(); ++h)
    if (seen.ledger[h] != wanted.ledger[h]) {
      what += "I1/I3/I5: lambda of head " + std::to_string(h) + " is " + std::to_string(seen.ledger[h]) + ", wanted " +
              std::to_string(wanted.ledger[h]);
      return Violate(what);
    }
  if (seen.local_tau != wanted.local_tau || seen.local_version != wanted.local_version)
    what += "I1: local tau is " + std::to_string(seen.local_tau) + ", wanted " + std::to_string(wanted.local_tau);
  if (seen.registers != wanted.registers) what += "I1: registers are not what was agreed on";
  if (seen.rate != wanted.rate)
    what += "I1: the rate is " + std::to_string(seen.rate * 1e6) + "e-6, wanted " + std::to_string(wanted.rate * 1e6) +
            "e-6";
  if (seen.unsure != wanted.unsure) what += seen.unsure ? "UNSURE without cause" : "goes on as if it were sure";
  Violate(what);
}

void Checker::CompareWeights(model::Boundary b, const Round& round) {
  for (uint32_t head = 0; head < plan_->head_count(); ++head) {
    std::optional<uint64_t> bits;
    for (const auto& [r, fill] : round.fills) {
      if (diverged_[r] || fill.head_bits[head] == 0) continue;
      if (bits && *bits != fill.head_bits[head])
        return Violate(At(r, b) + "I1: weights of head " + std::to_string(head) + " differ between replicas");
      bits = fill.head_bits[head];
    }
  }
}

void Checker::OnAck(const model::Ack& ack) {
  const auto known = orders_.find(ack.order_id);
  if (known == orders_.end()) return Violate("I4: an ack names an order that nobody gave");
  switch (ack.outcome) {
    case model::AckOutcome::kApplied:
      break;
    case model::AckOutcome::kExpired:
      ++tally.acks_expired;
      return;
    case model::AckOutcome::kRefused:
      ++tally.acks_refused;
      return;
    case model::AckOutcome::kFailed:
      ++tally.acks_failed;
      return;
    default:
      ++tally.acks_other;
      return;
  }
  ++tally.acks_applied;
  const Known& order = known->second;
  if (order.attempt != attempt_) return Violate("I4: an order of another attempt was acked as applied");
  if (!order.endless && ack.boundary > order.expires) return Violate("I4: acked as applied after its last boundary");
  if (!order.endless && ack.boundary == order.expires) ++tally.at_the_edge;
  const auto applied = rounds_.find(ack.boundary), next = rounds_.find(ack.boundary + 1);
  if (applied == rounds_.end() || !applied->second.acted)
    return Violate("I7: acked as applied at boundary " + std::to_string(ack.boundary) + ", where nothing was");
  if (next == rounds_.end() || !next->second.complete)
    return Violate("I7: acked as applied before R of the next boundary was there");
  if (!AllEqual(next->second)) Violate("I7: acked as applied though the ranks differ in the next R");
}

void Checker::EndAttempt(bool clean) {
  if (clean && !rounds_.empty()) CheckRounds(rounds_.rbegin()->first);
}

void Checker::CheckRounds(model::Boundary until) {
  for (auto round = rounds_.lower_bound(joined_at_); round != rounds_.end() && round->first <= until; ++round)
    if (round->second.fills.size() != world())
      Violate("I6: boundary " + std::to_string(round->first) + " has " + std::to_string(round->second.fills.size()) +
              " R of " + std::to_string(world()) + " ranks");
}

}  // namespace gyrostat::simulation
