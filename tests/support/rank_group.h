// Ranks that agree, without threads, network or weights: each boundary is one call, and R is a MAX over vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/src/agreement/agreement.h"
#include "client/src/agreement/leader_desk.h"
#include "support/clip_client.h"

namespace gyrostat::testing {

inline constexpr uint32_t kGroupLayers = 2, kGroupHeads = 4;

class RankGroup {
 public:
  explicit RankGroup(uint32_t ranks, client::AgreementTerms terms = {}) {
    settings.model = ClipModel(kGroupLayers, kGroupHeads);
    settings.allow = {"qk_clip", "lr_scale"};
    settings.allow_qk_clip = true;
    settings.attn_logit = {.kind = model::LogitKind::kExact, .scaled = true, .masked = true};
    settings.world_size = ranks;
    settings.agreement_lag = terms.lag;
    terms.layout.statistics = kGroupLayers * kGroupHeads;
    terms_ = terms;
    attempt.bytes.fill(7);
    maxima.assign(terms.layout.statistics, 10);
    for (uint32_t i = 0; i < ranks; ++i)
      rank.push_back(std::make_unique<client::Agreement>(&settings, terms_, attempt));
    ready.assign(ranks, true);
    usable.assign(ranks, true);
    fails_to_apply.assign(ranks, false);
    desk = std::make_unique<client::LeaderDesk>(rank[0].get());
  }

  // One boundary of all ranks. The action of rank 0 is what the last Decide said.
  const client::Action& Step() {
    ++boundary;
    for (size_t i = 0; i < rank.size(); ++i) Decide(i);
    std::vector<float> reduced(terms_.layout.size(), -FLT_MAX), lanes(reduced.size());
    for (size_t i = 0; i < rank.size(); ++i) {
      client::FillInput in{.maxima = maxima, .maxima_usable = usable[i], .ready = ready[i]};
      if (i == 0) in.proposal = next != nullptr ? std::exchange(next, nullptr) : desk->Propose(boundary, Step64());
      fitted = rank[i]->Fill(boundary, in, lanes);
      for (size_t k = 0; k < lanes.size(); ++k) reduced[k] = std::max(reduced[k], lanes[k]);
      if (i == 0) leader_lanes = lanes;
    }
    rounds[boundary] = reduced;
    return actions[0];
  }
  void Steps(int count) {
    while (count-- > 0) Step();
  }

  // An order for these heads, right for what was measured at `basis`.
  model::Order OrderFor(model::Boundary basis, double tau, const std::vector<uint32_t>& heads) const {
    model::Order order;
    order.id.bytes.fill(static_cast<uint8_t>(basis));
    order.attempt = attempt;
    order.epoch = rank[0]->epoch();
    order.basis = basis;
    order.expires_boundary = basis + 16;
    order.tau = tau;
    for (const uint32_t head : heads)
      order.entries.push_back({head / kGroupHeads, head % kGroupHeads, maxima[head], 0});
    return order;
  }

  bool IsEqual() const {
    for (const auto& each : rank)
      if (each->digest() != rank[0]->digest()) return false;
    return true;
  }

  client::Settings settings;
  model::AttemptId attempt;
  std::vector<std::unique_ptr<client::Agreement>> rank;
  std::unique_ptr<client::LeaderDesk> desk;
  std::vector<float> maxima;  // What the next forward measures, on all ranks.
  std::vector<bool> ready, usable, fails_to_apply;
  std::map<model::Boundary, std::vector<float>> rounds;
  std::vector<float> leader_lanes;
  std::map<size_t, client::Action> actions;
  const client::Proposal* next = nullptr;  // Put in instead of the desk's.
  std::vector<size_t> deaf;                // Ranks on which the next R fails.
  model::Boundary boundary = 0;
  bool fitted = true;

 private:
  model::Step Step64() const { return 100 + static_cast<model::Step>(boundary); }

  void Decide(size_t i) {
    client::Agreement& me = *rank[i];
    const bool waits = me.needs_round(boundary);
    const bool fails = std::erase(deaf, i) > 0;
    const std::span<const float> lanes =
        waits ? std::span<const float>(rounds.at(boundary - terms_.lag)) : std::span<const float>();
    const client::Action& action = fails ? me.DecideFailed(boundary) : me.Decide(boundary, lanes);
    if (i == 0 && !fails) desk->Decided(action, boundary, Step64());
    if (i == 0 && fails) desk->Lost("the collective failed", boundary, Step64());
    if (action.acts() && fails_to_apply[i]) {
      me.Failed("no memory");
      if (i == 0) desk->Failed("no memory");
    } else if (action.acts()) {
      me.Applied();
      if (i == 0) desk->Applied(action);
    }
    actions[i] = action;
  }

  client::AgreementTerms terms_;
};

}  // namespace gyrostat::testing
