// journal-replay DATABASE RUN LAYERS HEADS GROUP: reads a run's journal and works out again, from the reports alone,
// every tick that the client says it applied. Independent of remedy/ and policy/ on purpose: it has its own ledger and
// libm's logarithm.
//
// The rule (protocol.md §1.4): target = lambda@forward + min(ln(S / tau), ln 10); applied at a boundary,
// delta = max(0, target - lambda); heads that share a factor (group_min, layer_gain) are all charged their
// largest.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "model/report.h"
#include "store/reader.h"

namespace gyrostat {
namespace {

constexpr double kTicksPerNat = 1 << 20;

struct Measured {
  uint64_t ledger_version = 0;
  std::vector<float> maxima;  // Layers x heads.
};

// One boundary that moved the ledger: by an acknowledged order, or by the client itself.
struct Move {
  uint64_t version_before = 0, version_after = 0;
  model::Boundary basis = 0;
  double tau = 0;
  model::ClipVariant variant = model::ClipVariant::kMha;
  std::vector<model::ClipEntry> entries;  // Of the order; empty for a local clip.
  model::LedgerDelta applied;
  bool local = false;
};

[[noreturn]] void Fail(const std::string& text) {
  std::printf("journal-replay: %s\n", text.c_str());
  std::exit(1);
}

class Replay {
 public:
  // `group` query heads share a key head.
  Replay(std::string path, std::string run, size_t layers, size_t heads, size_t group)
      : path_(std::move(path)), run_(std::move(run)), layers_(layers), heads_(heads), group_(group) {}

  void Read() {
    const auto reader = store::Reader::Open(path_);
    if (!reader.ok()) Fail(std::string(reader.status().message()));
    const auto orders = (*reader)->Orders(run_);
    const auto acks = (*reader)->Acks(run_);
    if (!orders.ok() || !acks.ok()) Fail("run " + run_ + " has no orders or acks to read");
    std::map<model::OrderId, model::Order> by_id;
    for (const model::Order& order : *orders) {
      by_id[order.id] = order;
      if (order.where == model::ClipWhere::kLocal && order.tau > 0) local_ = order;
    }
    for (const model::Ack& ack : *acks)
      if (ack.outcome == model::AckOutcome::kApplied && ack.applied.size() > 0) AddOrder(by_id, ack);
    const absl::Status read = (*reader)->ForEachReport(
        run_, [this](const model::AttemptId&, const model::Report& report) { AddReport(report); });
    if (!read.ok()) Fail(std::string(read.message()));
    std::sort(moves_.begin(), moves_.end(),
              [](const Move& a, const Move& b) { return a.version_before < b.version_before; });
  }

  void Check() {
    if (moves_.empty()) Fail("run " + run_ + " applied nothing");
    versions_[0] = std::vector<int64_t>(layers_ * heads_, 0);
    std::vector<int64_t> lambda = versions_[0];
    uint64_t version = 0, ticks = 0;
    for (const Move& move : moves_) {
      if (move.version_before != version || move.version_after != version + 1)
        Fail("a move goes from version " + std::to_string(move.version_before) + " to " +
             std::to_string(move.version_after) + " where the ledger stands at " + std::to_string(version));
      const std::vector<int64_t> expected = Deltas(move, lambda);
      std::vector<int64_t> seen(expected.size(), 0);
      for (size_t i = 0; i < move.applied.size(); ++i)
        seen[Index(move.applied.layer[i], move.applied.head[i])] = move.applied.ticks[i];
      for (size_t i = 0; i < expected.size(); ++i) {
        // Targets are rounded to a tick by another logarithm than this one.
        const int64_t slack = move.local ? 1 : 0;
        if (std::llabs(expected[i] - seen[i]) > slack)
          Fail("version " + std::to_string(move.version_after) + ": head " + std::to_string(i) + " was charged " +
               std::to_string(seen[i]) + " ticks, wanted " + std::to_string(expected[i]));
        lambda[i] += seen[i];
        ticks += static_cast<uint64_t>(seen[i]);
      }
      versions_[++version] = lambda;
    }
    std::printf("journal-replay: %zu moves, %llu ticks, all reproduced\n", moves_.size(),
                static_cast<unsigned long long>(ticks));
  }

 private:
  size_t Index(uint32_t layer, uint32_t head) const { return layer * heads_ + head; }

  void AddOrder(const std::map<model::OrderId, model::Order>& by_id, const model::Ack& ack) {
    const auto found = by_id.find(ack.order_id);
    if (found == by_id.end()) Fail("an ack answers an order that the journal does not hold: " + ack.order_id.ToHex());
    const model::Order& order = found->second;
    if (ack.boundary > order.expires_boundary) Fail("order " + order.id.ToHex() + " was applied after its expiry");
    moves_.push_back({ack.ledger_version_before, ack.ledger_version_after, order.basis, order.tau, order.variant,
                      order.entries, ack.applied, false});
  }

  void AddReport(const model::Report& report) {
    const auto maxima = report.Array(model::Signal::kAttnLogitMax);
    Measured& measured = measured_[report.boundary];
    measured.ledger_version = report.ledger_version;
    measured.maxima.assign(maxima.begin(), maxima.end());
    const model::LocalClips& clips = report.local_clips;
    if (clips.applied.size() > 0)
      moves_.push_back({clips.ledger_version_before, clips.ledger_version_after, clips.boundary, local_.tau,
                        local_.variant, {}, clips.applied, true});
  }

  int64_t Target(float s, double tau, int64_t lambda) const {
    return lambda + std::llround(std::min(std::log(double{s} / tau), std::log(10.0)) * kTicksPerNat);
  }

  // Ticks that `move` should have charged to each head, given the ledger as it stood.
  std::vector<int64_t> Deltas(const Move& move, const std::vector<int64_t>& lambda) {
    const auto basis = measured_.find(move.basis);
    if (basis == measured_.end()) Fail("no report of basis " + std::to_string(move.basis));
    const auto then = versions_.find(basis->second.ledger_version);
    if (then == versions_.end()) Fail("a report names a ledger version that never was");
    std::vector<int64_t> deltas(lambda.size(), 0);
    if (move.local) {
      for (size_t i = 0; i < lambda.size(); ++i)
        if (std::isfinite(basis->second.maxima[i]) && basis->second.maxima[i] > move.tau)
          deltas[i] = std::max<int64_t>(0, Target(basis->second.maxima[i], move.tau, then->second[i]) - lambda[i]);
    }
    for (const model::ClipEntry& entry : move.entries) {
      const size_t i = Index(entry.layer, entry.head);
      const float s = basis->second.maxima[i];
      if (s != entry.reported_max) Fail("an order says a maximum that the report of its basis does not");
      if (std::llabs(Target(s, move.tau, then->second[i]) - entry.target_ticks) > 1)
        Fail("an order's target of " + std::to_string(entry.target_ticks) + " ticks is not what its evidence gives, " +
             std::to_string(Target(s, move.tau, then->second[i])));
      deltas[i] = std::max<int64_t>(0, entry.target_ticks - lambda[i]);
    }
    if (move.variant == model::ClipVariant::kGroupMin) SpreadOverGroups(group_, &deltas);
    if (move.variant == model::ClipVariant::kLayerGain) SpreadOverGroups(heads_, &deltas);
    return deltas;
  }

  static void SpreadOverGroups(size_t group, std::vector<int64_t>* deltas) {
    for (size_t first = 0; first < deltas->size(); first += group) {
      const auto begin = deltas->begin() + static_cast<std::ptrdiff_t>(first);
      std::fill_n(begin, group, *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(group)));
    }
  }

  const std::string path_, run_;
  const size_t layers_, heads_, group_;
  model::Order local_;
  std::map<model::Boundary, Measured> measured_;
  std::map<uint64_t, std::vector<int64_t>> versions_;
  std::vector<Move> moves_;
};

}  // namespace
}  // namespace gyrostat

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: journal-replay DATABASE RUN LAYERS HEADS HEADS_PER_KEY_HEAD\n");
    return 2;
  }
  gyrostat::Replay replay(argv[1], argv[2], std::stoul(argv[3]), std::stoul(argv[4]), std::stoul(argv[5]));
  replay.Read();
  replay.Check();
  return 0;
}
