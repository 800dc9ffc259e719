// Who takes part: attempts begin and end, ranks are lost in mid-step, come and go, and join again. As gyro_open and
// gyro_rejoin do it (client.cc), with the same Passage from one join to the next.
#include <algorithm>
#include <utility>

#include "simulation/job.h"

namespace gyrostat::simulation {
namespace {

constexpr size_t kFrames = 4;  // The leader's report waits for R of its boundary, and the next step begins meanwhile.

// Nobody calls it: its being there says that the job has a SUM.
int NoSum(void*, float*, size_t) { return 1; }

}  // namespace

void Job::Enrol(uint32_t r, size_t world, Rank* rank) const {
  rank->settings = std::make_unique<client::Settings>(settings_);
  client::Settings& settings = *rank->settings;
  settings.rank = r;
  settings.world_size = static_cast<uint32_t>(world);
  settings.collective.replica = r / plan_.shards;
  settings.collective.sum_begin = plan_.sums ? NoSum : nullptr;
  const ToyModel part(plan_, r % plan_.shards);
  for (uint32_t layer = 0; layer < plan_.layers; ++layer) {
    for (uint64_t head = 0; head < plan_.heads; ++head)
      if (part.Owns(static_cast<uint32_t>(head)))
        settings.shards.push_back({layer, 0, head, head + 1});
    for (uint64_t key = r % plan_.shards; key < plan_.kv_heads; key += plan_.shards)
      settings.shards.push_back({layer, 1, key, key + 1});
  }
  rank->frames = std::make_unique<client::FrameRing>(client::FrameLayout(plan_.layers, plan_.heads), kFrames);
}

model::AttemptId Job::DrawAttempt() {
  model::AttemptId attempt;
  for (uint8_t& byte : attempt.bytes) byte = static_cast<uint8_t>(dice_.Next());
  return attempt;
}

void Job::StartAttempt() {
  running_ = true;
  rounds_.clear();
  stops_.clear();
  stopped_.clear();
  const auto restored =
      checkpoint_.state.empty() || dice_.Chance(0.3) ? nullptr : Restored(checkpoint_.state);
  step_base_ = checkpoint_.step;
  replicas_ = plan_.replicas;
  ranks_.clear();
  ranks_.resize(plan_.ranks());
  std::vector<client::Passage> brought(ranks_.size());
  brought[0].attempt = DrawAttempt();
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    Enrol(r, ranks_.size(), &ranks_[r]);
    ranks_[r].model.emplace(checkpoint_.shards[r % plan_.shards]);
  }
  Join(brought, false);
  for (Rank& rank : ranks_)
    if (restored != nullptr) rank.agreement->NewEpoch(restored.get());
  Trace("attempt %llu begins, %s", static_cast<unsigned long long>(++attempt_number_),
        restored == nullptr ? "without state" : "from a checkpoint");
  checker_.BeginAttempt(
      brought[0].attempt, ViewOf(*ranks_[0].agreement, 1, 0),
      restored == nullptr ? RegisterTruth{}
                          : checkpoint_.registers.Shifted(-static_cast<int64_t>(checkpoint_.boundary)));
  if (leader_ != nullptr) dead_leaders_.push_back(std::move(leader_));
  leader_ = std::make_unique<Leader>(&plan_, &settings_, ranks_[0].agreement.get(), &scheduler_, &dice_, &daemon_,
                                     &checker_);
  if (restored != nullptr) leader_->NewEpoch(ranks_[0].agreement->epoch(), 0, restored.get());
  leader_->Connect();
  for (uint32_t r = 0; r < ranks_.size(); ++r) StartStep(r);
}

void Job::EndAttempt(Time restart_after) {
  if (!running_) return;
  running_ = false;
  ++generation_;
  leader_->Die();
  leader_->Break();
  checker_.EndAttempt(false);
  Trace("the attempt dies");
  After(restart_after, [this] { StartAttempt(); });
}

std::vector<client::JoinResult> Job::Join(const std::vector<client::Passage>& brought, bool may_fail) {
  const auto world = static_cast<uint32_t>(ranks_.size());
  const client::Settings& one = *ranks_[0].settings;
  const client::Statistics lanes_of(one.model, client::PlaceOf(one, 1));
  terms_ = {.layout = {.entries = plan_.entries, .statistics = lanes_of.maxima(), .more = lanes_of.more(),
                       .sums = lanes_of.sums()},
            .lag = 1};
  const uint64_t digest = client::Agreement(&one, terms_, {}).digest();
  const bool unable = dice_.Chance(plan_.cannot_bind);
  std::vector<float> reduced(client::JoinLanes(world), -1e30f), lanes(reduced.size());
  std::vector<client::JoinWord> words;
  for (uint32_t r = 0; r < world; ++r) {
    const client::Settings& settings = *ranks_[r].settings;
    client::JoinWord word{.layout = terms_.layout, .lag = 1, .world_size = world, .rank = r,
                          .replica = settings.collective.replica, .attempt = brought[r].attempt,
                          .epoch = brought[r].epoch, .boundary = brought[r].boundary, .digest = digest,
                          .ready = !(unable && r == world - 1), .cover = {}};
    for (const gyro_shard& shard : settings.shards)
      word.cover.Add(shard.layer, shard.key != 0 ? client::RowCover::Projection::kKey
                                                 : client::RowCover::Projection::kQuery,
                     shard.row_begin, shard.row_end);
    words.push_back(word);
    client::WriteJoin(word, lanes);
    for (size_t i = 0; i < lanes.size(); ++i) reduced[i] = std::max(reduced[i], lanes[i]);
  }
  std::vector<client::JoinResult> results;
  for (uint32_t r = 0; r < world; ++r) {
    client::JoinResult result = client::ReadJoin(words[r], client::RowCover::Whole(settings_.model, 1), reduced);
    // A rank that stands elsewhere than the others would then count other boundaries for ever, and all would hold.
    const bool alike = result.attempt == brought[r].attempt && result.boundary == brought[r].boundary;
    if (may_fail && alike && dice_.Chance(plan_.join_fails))
      result = {.may_act = false, .reason = "the collective failed when the ranks joined", .attempt = result.attempt,
                .epoch = brought[r].epoch, .boundary = brought[r].boundary, .replicas = result.replicas};
    Rank& rank = ranks_[r];
    rank.agreement = MakeRank(mutant_, rank.settings.get(), terms_, result.attempt);
    rank.statistics.emplace(settings_.model, client::PlaceOf(*rank.settings, result.replicas));
    rank.held = !result.may_act;
    if (rank.held) rank.agreement->HoldForEver(result.reason);
    results.push_back(std::move(result));
  }
  return results;
}

// The step that rank r is in cannot end together, nor can any after it. Each of the others is told by another call that
// fails, and stands then before the optimizer's step, or after it, with what R of before it brought or without.
void Job::LoseRank(uint32_t r) {
  model::Boundary broken = ranks_[r].filled + 1;
  for (const Rank& rank : ranks_) broken = std::min(broken, rank.filled + 1);
  Trace("rank %u is lost at boundary %llu", r, static_cast<unsigned long long>(broken));
  for (const Rank& rank : ranks_)  // Ranks that do not wait for each other have no boundary in common.
    if (rank.filled > broken) return EndAttempt(plan_.step);
  ++generation_;
  std::vector<uint32_t> cut;
  for (uint32_t each = 0; each < ranks_.size() && !Blocked(); ++each)
    if (each != r && !FindOut(each, broken)) cut.push_back(each);
  if (Blocked()) return;
  checker_.OnBroken(broken);
  for (const uint32_t each : cut) checker_.OnCut(each, broken);
  std::vector<bool> lost(ranks_.size(), false);
  lost[r] = true;
  for (uint32_t each = 1; each < ranks_.size(); ++each) lost[each] = lost[each] || dice_.Chance(0.1);
  if (!Blocked()) Regroup(lost);
}

bool Job::FindOut(uint32_t r, model::Boundary broken) {
  Rank& rank = ranks_[r];
  rank.waiting = false;
  if (rank.boundary == rank.filled) return true;  // Between two steps.
  if (rank.filled == broken) {               // In a step that some never began: its optimizer's step is not done.
    if (dice_.Chance(0.6)) {
      --rank.boundary;
      return true;
    }
    rank.agreement->Passed(rank.boundary);
    rank.agreement->DecideFailed(rank.boundary);
    if (r == 0)
      leader_->desk().Lost("the collective failed", rank.boundary,
                           step_base_ + static_cast<model::Step>(rank.boundary));
    return false;
  }
  if (dice_.Chance(0.3)) {
    --rank.boundary;
    return true;
  }
  const bool waits = rank.agreement->needs_round(broken);
  const bool came = waits && rounds_[broken - 1].arrived[r] && !rounds_[broken - 1].fails[r];
  Pass(r, false, waits && (!came || dice_.Chance(0.1)));
  if (!Blocked()) checker_.OnFill(r, broken, ViewOfRank(r, true, true, nullptr));
  rank.filled = broken;
  return true;
}

std::vector<std::optional<uint32_t>> Job::Places(const std::vector<Rank>& old, const std::vector<bool>& lost) {
  replicas_ = static_cast<uint32_t>(dice_.Between(plan_.shards == 1 ? 2 : 1, 3));
  std::vector<std::optional<uint32_t>> places(size_t{replicas_} * plan_.shards);
  std::vector<bool> taken = lost;
  taken[0] = true;  // The leader stays the first, or is gone.
  if (!lost[0]) places[0] = 0;
  for (uint32_t r = 1; r < places.size(); ++r)
    for (uint32_t each = r % plan_.shards; each < old.size() && !places[r]; each += plan_.shards)
      if (!taken[each] && !dice_.Chance(0.1)) {
        taken[each] = true;
        places[r] = each;
      }
  return places;
}

void Job::Inherit(Rank* from, Rank* to) const {
  to->model = std::move(from->model);
  to->boundary = from->boundary;
  to->alpha = from->alpha;
  to->alpha_touched_until = from->alpha_touched_until;
  to->not_ready_until = from->not_ready_until;
  to->apply_fails = from->apply_fails;
  to->clock_ahead = from->clock_ahead;
  to->knows = from->knows && !from->agreement->unsure() && !from->agreement->must_load();
  to->stood_at = from->boundary;
}

void Job::Regroup(const std::vector<bool>& lost) {
  const bool led = !lost[0];
  const auto places = Places(ranks_, lost);
  if (std::none_of(places.begin(), places.end(), [](const auto& each) { return each.has_value(); }))
    return EndAttempt(dice_.Between(1, 20) * plan_.step);
  ++generation_;
  rounds_.clear();
  stops_.clear();
  stopped_.clear();
  if (led) leader_->Leave();
  std::vector<Rank> old = std::exchange(ranks_, std::vector<Rank>(places.size()));
  std::vector<client::Passage> brought(places.size());
  std::vector<Arrival> arrivals(places.size());
  for (uint32_t r = 0; r < places.size(); ++r) {
    Enrol(r, places.size(), &ranks_[r]);
    if (!places[r]) {
      brought[r].attempt = DrawAttempt();
      ranks_[r].model.emplace(checkpoint_.shards[r % plan_.shards]);
      ranks_[r].knows = false;
      arrivals[r].weights = false;
      continue;
    }
    brought[r] = old[*places[r]].agreement->Leave(old[*places[r]].boundary);
    Inherit(&old[*places[r]], &ranks_[r]);
    arrivals[r] = {.from = places[r], .boundary = brought[r].boundary};
  }
  const std::vector<client::JoinResult> joined = Join(brought, led);
  for (uint32_t r = 0; r < places.size(); ++r)
    arrivals[r].weights &= arrivals[r].boundary == joined[0].boundary;
  checker_.OnJoined(arrivals, joined[0].attempt);
  GoOnTogether(joined, &brought, led);
}

void Job::GoOnTogether(const std::vector<client::JoinResult>& joined, std::vector<client::Passage>* brought,
                       bool led) {
  const auto world = static_cast<uint32_t>(ranks_.size());
  bool all_know = true;
  for (uint32_t r = 0; r < world; ++r) {
    Rank& rank = ranks_[r];
    std::string why;
    rank.agreement->GoOn(&(*brought)[r], joined[r].epoch, joined[r].boundary, &why);
    rank.boundary = rank.filled = joined[r].boundary;
    all_know &= !rank.agreement->must_load() && !rank.held;
  }
  Trace("%u ranks have joined again after boundary %llu%s%s", world,
        static_cast<unsigned long long>(joined[0].boundary), led ? "" : ", with another leader",
        all_know ? "" : ", and some must load a state");
  if (!led) {
    leader_->Die();
    leader_->Break();
    dead_leaders_.push_back(std::move(leader_));
    leader_ = std::make_unique<Leader>(&plan_, &settings_, ranks_[0].agreement.get(), &scheduler_, &dice_, &daemon_,
                                       &checker_);
  }
  leader_->GoOn(ranks_[0].agreement.get(), world, ranks_[0].boundary, (*brought)[0].state.get());
  leader_->Connect();
  // Most trainers tell newcomers at once; some forget it for a while.
  if (!all_know && dice_.Chance(0.6)) Repair();
  if (!running_ || Blocked()) return;
  for (uint32_t r = 0; r < world; ++r) StartStep(r);
}

}  // namespace gyrostat::simulation
