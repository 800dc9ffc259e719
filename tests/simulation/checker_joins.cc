// The checker's half of what befalls the job as a whole: ranks that are lost and join again, and reports of all ranks.
#include <algorithm>
#include <utility>

#include "simulation/checker.h"

namespace gyrostat::simulation {

void Checker::OnCut(uint32_t rank, model::Boundary of) {
  failed_[{rank, of}] = true;
  if (!truth_[rank].unsure) ++tally.unsure;
  truth_[rank].unsure = true;
  diverged_[rank] = true;
}

void Checker::OnBroken(model::Boundary b) {
  CheckRounds(b - 1);
  const auto round = rounds_.find(b);
  const bool complete = round != rounds_.end() && round->second.complete;
  if (round != rounds_.end() && !complete) Complete(b);
  for (uint32_t r = 0; r < world() && !complete; ++r)
    if (round == rounds_.end() || !round->second.fills.contains(r)) EnterEpoch(r, b);
}

// Ledger and registers stay with who has them. Who is new, unsure, or has missed a boundary must be told them, and
// nobody acts before he was.
void Checker::OnJoined(const std::vector<Arrival>& all, const model::AttemptId& attempt) {
  ++tally.joins;
  attempt_ = attempt;
  model::Boundary last = 0;
  uint32_t epoch = 0;
  for (const Arrival& each : all) {
    last = std::max(last, each.boundary);
    if (each.from) epoch = std::max(epoch, truth_[*each.from].epoch + 1);
  }
  std::vector<StateView> truth(all.size());
  std::vector<RegisterTruth> registers(all.size());
  std::vector<bool> diverged(all.size()), must_load(all.size());
  for (size_t r = 0; r < all.size(); ++r) {
    const Arrival& each = all[r];
    truth[r].ledger.assign(plan_->head_count(), 0);
    diverged[r] = !each.weights;
    must_load[r] = true;
    tally.newcomers += each.from ? 0 : 1;
    if (each.from) {
      const StateView& before = truth_[*each.from];
      const bool behind = each.boundary < last;
      tally.behind += behind ? 1 : 0;
      tally.joined_unsure += before.unsure ? 1 : 0;
      must_load[r] = must_load_[*each.from] || before.unsure || behind;
      diverged[r] = diverged[r] || diverged_[*each.from];
      truth[r].unsure = before.unsure;
      if (!before.unsure) {
        truth[r].ledger = before.ledger;
        registers[r] = register_truth_[*each.from];
        truth[r].registers = registers[r].registers;
      }
    }
    truth[r].attempt = attempt;
    truth[r].epoch = epoch;
  }
  truth_ = std::move(truth);
  register_truth_ = std::move(registers);
  diverged_ = std::move(diverged);
  must_load_ = std::move(must_load);
  rounds_.erase(rounds_.upper_bound(last), rounds_.end());
  epochs_.clear();
  failed_.clear();
  apply_failed_.clear();
  epoch_begins_ = joined_at_ = last + 1;
}

void Checker::OnReport(const model::Report& report) {
  const auto round = rounds_.find(report.boundary);
  if (round == rounds_.end() || !round->second.complete) return;
  std::vector<RankSaid> said;
  for (const auto& [r, fill] : round->second.fills) said.push_back(fill.said);
  const bool sums = plan_->sums && round->second.sum_came;
  ++tally.reports;
  tally.sums += sums ? 1 : 0;
  tally.odd_reports += std::any_of(said.begin(), said.end(), [](const RankSaid& each) { return each.IsOdd(); }) ? 1 : 0;
  if (const std::string wrong = CheckReport(*plan_, said, sums, report); !wrong.empty())
    Violate("the report of boundary " + std::to_string(report.boundary) + ": " + wrong);
}

}  // namespace gyrostat::simulation
