// Orders of other kinds than clips, as a person or a policy would give them: right ones, and some that are out of
// bounds, late, doubled, or expect what is no longer so.
#include <utility>

#include "simulation/job.h"

namespace gyrostat::simulation {

void Job::ThrowRegisterOrder() {
  const model::Order order = RegisterOrder();
  checker_.OnOrder(order, true);
  // Mostly past the judge of orders, whose copy of the registers then follows.
  if (dice_.Chance(0.7))
    leader_->Receive(order);
  else
    leader_->desk().Take(order);
  if (dice_.Chance(0.3)) leader_->desk().Take(order);
  Trace("a person orders %s of %zu registers", model::Token(order.kind), order.sets.size());
}

model::Order Job::RegisterOrder() {
  client::Agreement& rank = *ranks_[0].agreement;
  const model::Boundary b = ranks_[0].boundary;
  model::Order order;
  for (size_t i = 0; i < order.id.bytes.size(); ++i) order.id.bytes[i] = static_cast<uint8_t>(dice_.Next());
  order.run = settings_.run;
  order.attempt = rank.attempt();
  order.epoch = rank.epoch();
  order.basis = b;
  order.expires_boundary = b + dice_.Between(1, 6);
  const auto boundary = static_cast<double>(b);
  switch (dice_.Between(0, 4)) {
    case 0:
    case 1: {
      order.kind = model::InterventionKind::kDeepnormAlpha;
      order.ramp = static_cast<uint32_t>(dice_.Between(0, 20));
      const bool both = dice_.Chance(0.5);  // Now and then further than a factor of 5.
      order.sets = SetsOf(remedy::kRegisterAlphas, both ? std::vector<double>{0.2 + 4 * dice_.Real(), 1 + dice_.Real()}
                                                        : std::vector<double>{0.2 + 4 * dice_.Real()});
      const auto betas = dice_.Chance(0.3) ? SetsOf(remedy::kRegisterBetas, {0.9 + 0.11 * dice_.Real()})
                                           : std::vector<model::RegisterSet>{};
      order.sets.insert(order.sets.end(), betas.begin(), betas.end());
      return order;
    }
    case 2: {
      order.kind = model::InterventionKind::kWarmupExtension;
      const double fall = dice_.Chance(0.3) ? static_cast<double>(dice_.Between(1, 20)) : 0;
      const double begin = boundary + fall, length = static_cast<double>(dice_.Between(1, 7 * kWarmup));
      order.sets = SetsOf(remedy::kRegisterRayRate,
                          {kPeak * dice_.Real() / 2, 1.05 * kPeak / static_cast<double>(kWarmup) * dice_.Real(), begin,
                           begin + length, fall, fall > 0 ? 0.1 + 0.8 * dice_.Real() : 1});
      return order;
    }
    case 3:
      order.kind = model::InterventionKind::kLrScale;
      order.sets = SetsOf(
          remedy::kRegisterLrScale,
          {1.1 * dice_.Real(), dice_.Chance(0.3) ? 0 : boundary + static_cast<double>(dice_.Between(1, 40))});
      return order;
    default:
      order.kind = model::InterventionKind::kSkipStep;
      order.sets = SetsOf(remedy::kRegisterSkipBoundary, {boundary + static_cast<double>(dice_.Between(1, 5))});
      return order;
  }
}

std::vector<model::RegisterSet> Job::SetsOf(uint32_t first, const std::vector<double>& values) {
  const remedy::RegisterFile& file = ranks_[0].agreement->registers().file();
  const uint32_t wrong = dice_.Chance(0.15) ? 1 : 0;
  std::vector<model::RegisterSet> sets;
  for (const double value : values) {
    const uint32_t id = first + static_cast<uint32_t>(sets.size());
    sets.push_back({id, static_cast<float>(value), file.at(id).version + wrong});
  }
  return sets;
}

}  // namespace gyrostat::simulation
