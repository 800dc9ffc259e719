// A job of ranks that agree, in one thread, by the C ABI: R is a MAX over vectors, which is there when a test says so,
// and the leader's sender takes a turn when a test says so. Its logits grow by 4 to 6 % a step; without clips, without
// end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "client/src/client.h"
#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "model/report.h"
#include "remedy/qk_clip.h"
#include "support/fake_transport.h"
#include "support/right_daemon.h"

namespace gyrostat::testing {

inline constexpr uint32_t kRanks = 3, kLayers = 2, kHeads = 4, kAllHeads = kLayers * kHeads;

class StillClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return {}; }
  int64_t UnixMs() const override { return 0; }
};

// A MAX and a SUM over vectors.
struct Network {
  struct Round {
    std::vector<float> lanes[kRanks];
  };
  Round rounds[2];
  bool there = false;  // What round_done answers.
  bool fails[kRanks][2] = {};
  uint32_t asked[kRanks] = {}, waits[kRanks] = {};
};

struct Port {
  Network* network = nullptr;
  uint32_t rank = 0;

  gyro_collective Collective(bool can_be_asked) {
    gyro_collective collective{};
    collective.struct_size = sizeof(collective);
    collective.context = this;
    collective.max_begin = &Begin<0>, collective.max_wait = &Wait<0>;
    collective.sum_begin = &Begin<1>, collective.sum_wait = &Wait<1>;
    if (can_be_asked) collective.round_done = &Done;
    return collective;
  }

 private:
  template <int kKind>
  static int Begin(void* context, float* lanes, size_t count) {
    const Port& port = *static_cast<Port*>(context);
    port.network->rounds[kKind].lanes[port.rank].assign(lanes, lanes + count);
    return 0;
  }
  template <int kKind>
  static int Wait(void* context, float* lanes, size_t count) {
    const Port& port = *static_cast<Port*>(context);
    Network& network = *port.network;
    ++network.waits[port.rank];
    if (std::exchange(network.fails[port.rank][kKind], false)) return 1;
    std::fill_n(lanes, count, kKind == 0 ? -FLT_MAX : 0.0f);
    for (const std::vector<float>& one : network.rounds[kKind].lanes) {
      if (one.size() != count) return 1;
      for (size_t i = 0; i < count; ++i) lanes[i] = kKind == 0 ? std::max(lanes[i], one[i]) : lanes[i] + one[i];
    }
    return 0;
  }
  static int Done(void* context) {
    const Port& port = *static_cast<Port*>(context);
    ++port.network->asked[port.rank];
    return port.network->there ? 1 : 0;
  }
};

// What a rank showed at a boundary. Compared bit for bit.
struct Shown {
  std::vector<float> weights;
  uint64_t version = 0, digest = 0;
  uint32_t epoch = 0;
  gyro_status status = GYRO_OK;
  std::vector<float> word;  // Its lanes of R that decisions read.
  bool operator==(const Shown&) const = default;
};
inline void PrintTo(const Shown& shown, std::ostream* out) {
  *out << "version " << shown.version << " epoch " << shown.epoch << " status " << shown.status << " digest "
       << shown.digest << " weights " << ::testing::PrintToString(shown.weights) << " word "
       << ::testing::PrintToString(shown.word);
}

class ThreadJob {
 public:
  explicit ThreadJob(bool can_be_asked = true, uint32_t ring = 16) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ports_[rank] = {&network, rank};
      client::Settings settings;
      settings.run = "right";
      settings.address = "fake:1";
      settings.active = rank == 0;
      settings.allow = {"qk_clip"};
      settings.allow_qk_clip = true;
      settings.attn_logit = {.kind = model::LogitKind::kExact, .scaled = true, .masked = true};
      settings.model.layers = kLayers;
      settings.model.heads = kHeads;
      settings.model.attention = model::Attention::kMha;
      settings.model.qk_norm = model::QkNorm::kNone;
      settings.model.master_fp32 = true;
      settings.rank = rank;
      settings.world_size = kRanks;
      settings.agreement_lag = 1;
      settings.ring_reports = ring;
      settings.collective = ports_[rank].Collective(can_be_asked);
      clients[rank] = new gyro_client(settings, Attempt());
      clients[rank]->Agree(Joined(0, 0));
      weights[rank].assign(kAllHeads, 4);
    }
    shared_ = clients[0]->shared;
    sender_ = std::make_unique<client::Sender>(shared_.get(), FakeDaemon::Table(), &clock_);
    clients[0]->lockstep->HasSender(clients[0]->Here());
    sender_->Open();
    Turn();
  }
  ~ThreadJob() {
    for (gyro_client* each : clients)
      if (each != nullptr) gyro_close(each, 0);
  }
  ThreadJob(const ThreadJob&) = delete;
  ThreadJob& operator=(const ThreadJob&) = delete;

  // The sender's turn, and the daemon's.
  void Turn() { sender_->Turn(); }
  std::vector<model::Report> Reports() const { return daemon.fake().reports(); }
  // The daemon answers what has come since it answered last.
  void Answer() {
    Turn();
    const size_t reported = Reports().size();
    if (reported == std::exchange(answered_, reported)) return;
    daemon.Answer(Reports().back().boundary);
    Turn();
  }

  // Forward, backward and optimizer step of all ranks; maxima of the forward are then known.
  void Train() {
    ++boundary;
    Boundary& now = history[boundary];
    now.version = clients[0]->lockstep->agreement().ledger().version();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      measured[rank].resize(kAllHeads);
      for (uint32_t h = 0; h < kAllHeads; ++h) {
        float& w = weights[rank][h];
        measured[rank][h] = w * w * (1 - 0.01f * static_cast<float>((boundary + rank + h) % kRanks));
        now.maxima[h] = std::max(now.maxima[h], measured[rank][h]);
        w *= 1.02f + 0.001f * static_cast<float>(h);
      }
    }
  }
  // What says this boundary and nothing else.
  double Loss() const { return 2 + 0.25 * static_cast<double>(boundary); }
  void Begin() {
    for (gyro_client* each : clients) gyro_step_begin(each, static_cast<int64_t>(boundary));
  }
  void Record() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      gyro_record_scalar(clients[rank], "loss", Loss());
      gyro_record_attn_logit_max(clients[rank], measured[rank].data(), kAllHeads, GYRO_LOGIT_UNKNOWN);
    }
  }
  void End() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) status[rank] = gyro_step_end(clients[rank]);
  }
  void Apply() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      gyro_order order{};
      order.struct_size = sizeof(order);
      while (gyro_poll(clients[rank], &order) == GYRO_OK) {
        for (uint32_t i = 0; i < order.q_count; ++i)
          weights[rank][order.q[i].layer * kHeads + order.q[i].head] *= order.q[i].factor;
        for (uint32_t i = 0; i < order.k_count; ++i)
          weights[rank][order.k[i].layer * kHeads + order.k[i].head] *= order.k[i].factor;
        gyro_ack(clients[rank], order.id, GYRO_APPLIED, nullptr);
      }
    }
    network.there = false;  // The round has just begun.
  }
  void Step() {
    Train();
    Begin();
    Record();
    End();
    Turn();
    Apply();
  }

  Shown Show(uint32_t rank) {
    const client::Agreement& agreement = clients[rank]->lockstep->agreement();
    const std::vector<float>& lanes = network.rounds[0].lanes[rank];
    const size_t word = agreement.terms().layout.statistics_at() + kAllHeads;
    return {weights[rank],     agreement.ledger().version(), agreement.digest(),
            agreement.epoch(), status[rank],                 {lanes.begin(), lanes.begin() + word}};
  }

  // As gyro_rejoin, but for the collective in it, which would wait for ranks of this very thread.
  void Rejoin() {
    network = {};  // Another collective: nobody asks what became of the old one's round.
    for (gyro_client* each : clients) {
      each->lockstep->Leave(each->Here());
      client::Passage brought = each->lockstep->agreement().Leave(boundary);
      const client::JoinResult join = Joined(each->lockstep->agreement().epoch() + 1, boundary);
      auto settings = std::make_unique<client::Settings>(each->lockstep->settings());
      client::Shared& shared = *each->shared;
      auto renewed = std::make_unique<client::Lockstep>(settings.get(), join, &shared.frames, &shared.orders,
                                                        &shared.records, &shared.counters);
      if (each == clients[0]) renewed->HasSender(each->Here());
      each->lockstep = std::move(renewed);
      each->membership = std::move(settings);
      each->lockstep->GoOn(each->Here(), join, std::move(brought));
    }
  }
  // The weights get another history, everywhere the same.
  void Reset() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      weights[rank].assign(kAllHeads, 4.5f);
      gyro_reset(clients[rank]);
    }
  }
  // What a daemon that knows all would order for heads above tau at `basis`.
  void Order(model::Boundary basis, uint8_t number, FakeDaemon* to) {
    const Boundary& then = history[basis];
    const client::Agreement& agreement = clients[0]->lockstep->agreement();
    model::Order order;
    for (uint32_t h = 0; h < kAllHeads; ++h) {
      const auto lambda = agreement.ledger().At(then.version, h / kHeads, h % kHeads);
      const double maximum = static_cast<double>(then.maxima[h]);
      const auto target = lambda ? remedy::ClipTarget(maximum, RightDaemon::kTau, *lambda) : std::nullopt;
      if (target) order.entries.push_back({h / kHeads, h % kHeads, then.maxima[h], *target});
    }
    if (order.entries.empty()) return;
    order.id.bytes.fill(number);
    order.run = "right";
    order.attempt = Attempt();
    order.epoch = agreement.epoch();
    order.basis = basis;
    order.expires_boundary = basis + 16;
    order.tau = RightDaemon::kTau;
    to->Send(order);
  }

  static model::AttemptId Attempt() { return *model::AttemptId::FromHex("00112233445566778899aabbccddeeff"); }
  static client::JoinResult Joined(uint32_t epoch, model::Boundary at) {
    client::JoinResult join;
    join.may_act = true;
    join.attempt = Attempt();
    join.epoch = epoch;
    join.boundary = at;
    join.replicas = kRanks;
    return join;
  }

  struct Boundary {
    float maxima[kAllHeads] = {};
    uint64_t version = 0;  // Of the ledger in the forward.
  };
  Network network;
  RightDaemon daemon;
  gyro_client* clients[kRanks] = {};
  std::vector<float> weights[kRanks], measured[kRanks];
  gyro_status status[kRanks] = {};
  model::Boundary boundary = 0;
  std::map<model::Boundary, Boundary> history;

 private:
  StillClock clock_;
  Port ports_[kRanks];
  std::shared_ptr<client::Shared> shared_;
  std::unique_ptr<client::Sender> sender_;
  size_t answered_ = 0;
};

}  // namespace gyrostat::testing
