// What ranks measure, how it rides in R and the SUM beside it, and what the leader reports of it.
#include <cmath>
#include <utility>

#include "simulation/job.h"

namespace gyrostat::simulation {
namespace {

client::Frame& FrameOf(client::FrameRing& frames, model::Boundary b) {
  return frames.queue().slot(b % frames.queue().capacity());
}

}  // namespace

void Job::MeasureStep(uint32_t r) {
  Rank& rank = ranks_[r];
  const model::Boundary b = rank.boundary;
  std::vector<float> maxima = rank.model->Forward(b + 1000 * attempt_number_, r / plan_.shards);
  if (dice_.Chance(plan_.bad_input / 4)) maxima[dice_.Between(0, maxima.size() - 1)] = std::nanf("");
  double weights = model::kAbsent;
  if (plan_.shards == 1) {
    uint64_t bits = 0;
    for (uint32_t head = 0; head < plan_.head_count(); ++head) bits = bits * 31 + rank.model->BitsOf(head);
    weights = static_cast<double>(bits & 0xffffff);
  }
  rank.said = Measure(plan_, weights, std::move(maxima), &dice_);
}

void Job::WriteStatistics(uint32_t r, std::vector<float>* lanes, std::vector<float>* sums) {
  Rank& rank = ranks_[r];
  client::Frame& frame = FrameOf(*rank.frames, rank.boundary);
  rank.said.WriteTo(step_base_ + static_cast<model::Step>(rank.boundary), &frame);
  frame.boundary = rank.boundary;
  frame.epoch = rank.agreement->epoch();
  frame.ledger_version = rank.forward_version;
  rank.statistics->Write(&frame, {.boundary = rank.boundary},
                         std::span<float>(*lanes).subspan(terms_.layout.statistics_at()), *sums);
}

void Job::Report(model::Boundary b, const Round& round) {
  Rank& leader = leader_rank();
  client::Frame& frame = FrameOf(*leader.frames, b);
  if (frame.boundary != b) return;  // A leader that did not wait has forgotten it.
  const bool sums = !round.sum_fails && !round.sums.empty();
  leader.statistics->Read(std::span<const float>(round.lanes).subspan(terms_.layout.statistics_at()),
                          sums ? std::span<const float>(round.sums) : std::span<const float>(), &frame);
  if (sums) checker_.OnSumCame(b);
  leader_->desk().Confirmed(leader.agreement->ConfirmedBy(b + 1, round.lanes));
  leader_->Tell();
  leader_->Report(frame);
}

}  // namespace gyrostat::simulation
