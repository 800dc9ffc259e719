#include "simulation/job.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "support/clip_client.h"

namespace gyrostat::simulation {
namespace {

constexpr double kTauMin = 20;
constexpr Time kCopy = 20;         // From the end of a collective to its result on the host.
constexpr Time kOwnPatience = 400;  // Of the rank that gives up waiting.

client::Settings SettingsOf(const Plan& plan) {
  client::Settings settings;
  settings.run = "simulated";
  settings.allow = {"qk_clip", "deepnorm_alpha", "warmup_extension", "lr_scale", "skip_step"};
  settings.allow_qk_clip = true;
  settings.tau_min = kTauMin;
  settings.world_size = plan.ranks();
  settings.agreement_lag = 1;
  settings.model = testing::ClipModel(plan.layers, plan.heads);
  settings.model.kv_heads = plan.kv_heads;
  if (plan.kv_heads != plan.heads) settings.model.attention = model::Attention::kGqa;
  settings.model.norm_placement = model::NormPlacement::kPost;
  settings.model.deepnorm_beta = 1;
  settings.model.schedule_peak = kPeak;
  settings.model.warmup_steps = kWarmup;
  settings.attn_logit = {.kind = model::LogitKind::kExact, .scaled = true, .masked = true};
  return settings;
}

}  // namespace

Job::Job(const Plan& plan, Mutant mutant, std::string* trace)
    : plan_(plan), mutant_(mutant), trace_(trace), dice_(plan.seed), settings_(SettingsOf(plan)),
      checker_(&plan_, &settings_), daemon_(&plan_, &scheduler_, &dice_) {
  daemon_.ports.order = [this](const model::Order& order, bool approved) { TakeOrder(order, approved); };
  daemon_.ports.acknowledged = [this](uint64_t sequence) {
    if (leader_ != nullptr) leader_->Acknowledged(sequence);
  };
  for (uint32_t s = 0; s < plan_.shards; ++s) checkpoint_.shards.emplace_back(plan_, s);
}

std::string Job::Run() {
  StartAttempt();
  MindTheWire();
  // A world without events is one that hangs: that is a fault too.
  for (uint64_t i = 0; !ending_ && !Blocked(); ++i) {
    if (scheduler_.empty() || i > 2'000'000) return "the job does not get on";
    scheduler_.RunOne();
  }
  if (!Blocked()) checker_.EndAttempt(true);
  if (Blocked()) Trace("VIOLATION %s", checker_.violation().c_str());
  return checker_.violation();
}

void Job::After(Time delay, std::function<void()> what) {
  scheduler_.After(delay, [this, what = std::move(what), generation = generation_] {
    if (generation == generation_) what();
  });
}

void Job::Trace(const char* format, ...) {
  if (trace_ == nullptr) return;
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  char stamp[32];
  std::snprintf(stamp, sizeof(stamp), "%9llu  ", static_cast<unsigned long long>(scheduler_.now()));
  *trace_ += stamp;
  *trace_ += text;
  *trace_ += '\n';
}

void Job::StartStep(uint32_t r) {
  Rank& rank = ranks_[r];
  const model::Boundary b = ++rank.boundary;
  rank.forward_version = rank.agreement->ledger().version();
  MeasureStep(r);
  rank.base = BaseRate(step_base_ + static_cast<model::Step>(b));
  rank.rate = rank.agreement->Rate(rank.base, b);
  const auto skip = static_cast<model::Boundary>(
      rank.agreement->registers().file().at(remedy::kRegisterSkipBoundary).to);
  rank.skips = skip == b;
  Time takes = plan_.step - 200 + dice_.Between(0, 400);
  if (r == 0 && dice_.Chance(plan_.slow_leader)) takes *= dice_.Between(2, 10);
  if (dice_.Chance(plan_.pause)) takes += dice_.Between(1, 30) * plan_.step;
  After(takes, [this, r] { AtBoundary(r); });
}

void Job::AtBoundary(uint32_t r) {
  const uint64_t generation = generation_;
  Misbehave(r);
  if (generation != generation_ || Blocked()) return;
  Rank& rank = ranks_[r];
  const model::Boundary b = rank.boundary;
  const bool there = !rank.agreement->needs_round(b) || rounds_[b - 1].arrived[r];
  if (there) return GoOn(r, false);
  if (mutant_ == Mutant::kPollIfReady) return GoOn(r, true);
  rank.waiting = true;
  if (mutant_ == Mutant::kLocalTimeout)
    After(kOwnPatience, [this, r, b] {
      if (ranks_[r].waiting && ranks_[r].boundary == b) GoOn(r, true);
    });
}

void Job::GoOn(uint32_t r, bool skip) {
  const Rank& rank = ranks_[r];
  const bool fails = rank.agreement->needs_round(rank.boundary) && !skip && rounds_[rank.boundary - 1].fails[r];
  Pass(r, skip, fails);
  if (!Blocked()) Fill(r);
}

void Job::Pass(uint32_t r, bool skip, bool fails) {
  Rank& rank = ranks_[r];
  rank.waiting = false;
  const model::Boundary b = rank.boundary;
  client::Agreement& me = *rank.agreement;
  const bool waits = me.needs_round(b);
  if (!rank.skips) rank.model->Grow(b, rank.base > 0 ? rank.rate / rank.base : 1);
  std::span<const float> lanes;
  if (waits) lanes = skip ? std::span<const float>(rank.own_lanes) : std::span<const float>(rounds_[b - 1].lanes);
  me.Passed(b);
  const client::Action& action = fails ? me.DecideFailed(b) : me.Decide(b, lanes);
  if (fails) checker_.OnCollectiveFailed(r, b - 1);
  if (r == 0 && fails) leader_->desk().Lost("the collective failed", b, step_base_ + static_cast<model::Step>(b));
  if (r == 0 && !fails) leader_->desk().Decided(action, b, step_base_ + static_cast<model::Step>(b));
  if (action.verdict != client::Verdict::kNone || action.local)
    Trace("rank %u boundary %llu: verdict %d%s %s", r, static_cast<unsigned long long>(b),
          static_cast<int>(action.verdict), action.local ? " local" : "", action.reason.c_str());
  bool acts = action.acts();
  if (mutant_ == Mutant::kClockExpiry && action.verdict == client::Verdict::kApply) {
    const auto deadline = rounds_[b - 1].deadline.find(action.tag);
    const auto clock = static_cast<int64_t>(scheduler_.now()) + rank.clock_ahead;
    if (deadline != rounds_[b - 1].deadline.end() && clock > static_cast<int64_t>(deadline->second)) acts = false;
  }
  if (acts) Act(r, action);
  if (r == 0) leader_->Tell();
  if (b > rank.alpha_touched_until) rank.alpha = me.registers().file().at(remedy::kRegisterAlphas).At(b);
}

void Job::Act(uint32_t r, const client::Action& action) {
  Rank& rank = ranks_[r];
  const bool fails = std::exchange(rank.apply_fails, false);
  if (fails) {
    rank.model->Scale(action.plan, (action.plan.q.size() + action.plan.k.size()) / 2);
    rank.agreement->Failed("a binding broke");
    checker_.OnApplyFailed(r, rank.boundary);
    if (r == 0) leader_->desk().Failed("a binding broke");
    return;
  }
  rank.model->Scale(action.plan, SIZE_MAX);
  for (const model::RegisterSet& set : action.sets)
    if (set.id >= remedy::kRegisterBetas)
      rank.model->ScaleLayer(set.id - remedy::kRegisterBetas,
                             set.value / rank.agreement->registers().file().at(set.id).At(rank.boundary));
  rank.agreement->Applied();
  if (r == 0) leader_->desk().Applied(action);
}

const client::Proposal* Job::Propose(uint32_t r) {
  if (r != 0) return nullptr;
  leader_->TakeOrders();
  const model::Boundary b = ranks_[0].boundary;
  const client::Proposal* proposal = leader_->desk().Propose(b, step_base_ + static_cast<model::Step>(b));
  leader_->Tell();
  if (proposal == nullptr) return nullptr;
  proposal_ = *proposal;
  if (dice_.Chance(plan_.order_forged)) Forge(&proposal_);
  rounds_[b].deadline[proposal_.tag] = scheduler_.now() + plan_.step;
  return &proposal_;
}

// A leader whose memory is broken, or who lies.
void Job::Forge(client::Proposal* p) {
  client::ProposalEntry& entry = p->entries[dice_.Between(0, p->entries.size() - 1)];
  switch (dice_.Between(0, 7)) {
    case 0:
      entry.value += 1;
      break;
    case 1:
      entry.value = static_cast<float>(remedy::kClipTicksMax + dice_.Between(1, 4'000'000));
      break;
    case 2:
      entry.stamp += static_cast<uint32_t>(dice_.Between(1, 3));
      break;
    case 3:
      entry.what += 1;
      break;
    case 4:
      p->tau = static_cast<float>(kTauMin - 1);
      break;
    case 5:
      p->split = 0.25f;
      break;
    case 6:
      p->entries.push_back(entry);
      break;
    default:
      entry.stamp = static_cast<uint32_t>(dice_.Between(60, 70));
  }
  Trace("the order in R is forged");
}

void Job::Fill(uint32_t r) {
  Rank& rank = ranks_[r];
  const model::Boundary b = rank.boundary;
  const bool usable = !dice_.Chance(plan_.bad_input);
  const bool ready = b > rank.not_ready_until;
  rank.agreement->Observe(remedy::kRegisterAlphas, rank.alpha);
  // The other layer's alpha is always right, where there is somebody to read it.
  if (r % 2 == 0)
    rank.agreement->Observe(remedy::kRegisterAlphas + 1,
                            rank.agreement->registers().file().at(remedy::kRegisterAlphas + 1).At(b));
  const client::Proposal* proposal = Propose(r);
  std::vector<float> lanes(terms_.layout.size()), sums(terms_.layout.sums);
  if (!rank.agreement->Fill(
          b, {.maxima = rank.said.maxima, .maxima_usable = usable, .ready = ready, .proposal = proposal}, lanes)) {
    leader_->desk().NotIn();
    leader_->Tell();
    proposal = nullptr;
  }
  WriteStatistics(r, &lanes, &sums);
  checker_.OnFill(r, b, ViewOfRank(r, ready, usable, proposal));
  rank.filled = b;
  if (mutant_ == Mutant::kPollIfReady || mutant_ == Mutant::kLocalTimeout) {
    rank.own_lanes = lanes;
    const auto order = rank.own_lanes.begin() + client::LaneLayout::kOrder;
    std::fill(order, order + (client::LaneLayout::kEntries - client::LaneLayout::kOrder), 0.0f);
  }
  if (r == 0) {
    Round& round = rounds_[b];
    round.epoch = rank.agreement->epoch();
    if (++passed_ >= plan_.boundaries && stops_.upper_bound(b) == stops_.end()) PlanStop(Stop::kSave, b);
  }
  Contribute(r, lanes, sums);
  if (Blocked()) return;
  if (stops_.contains(b)) return StopAt(r);
  StartStep(r);
}

FillView Job::ViewOfRank(uint32_t r, bool ready, bool usable, const client::Proposal* proposal) const {
  const Rank& rank = ranks_[r];
  FillView view{.state = ViewOf(*rank.agreement, rank.alpha, rank.rate),
                .base = rank.base,
                .not_ready = !ready || rank.agreement->unsure() || rank.held,
                .said = rank.said,
                .usable = usable,
                .head_bits = {},
                .proposal = proposal};
  for (uint32_t head = 0; head < plan_.head_count(); ++head)
    view.head_bits.push_back(rank.model->Owns(head) ? rank.model->BitsOf(head) : 0);
  return view;
}

void Job::Contribute(uint32_t r, const std::vector<float>& lanes, const std::vector<float>& sums) {
  const model::Boundary b = ranks_[r].boundary;
  Round& round = rounds_[b];
  if (round.lanes.empty()) {
    round.lanes = lanes;
    round.sums = sums;
    round.arrived.assign(ranks_.size(), false);
    round.fails.assign(ranks_.size(), false);
  } else {
    for (size_t i = 0; i < lanes.size(); ++i) round.lanes[i] = std::max(round.lanes[i], lanes[i]);
    for (size_t i = 0; i < sums.size(); ++i) round.sums[i] += sums[i];
  }
  if (++round.put_in < ranks_.size()) return;
  const bool fails = dice_.Chance(plan_.collective_fails);
  round.sum_fails = dice_.Chance(plan_.sum_fails);
  for (uint32_t each = 0; each < ranks_.size(); ++each) {
    if (fails) round.fails[each] = dice_.Chance(0.5);
    Time copy = kCopy + dice_.Between(0, 30);
    if (dice_.Chance(plan_.late_copy)) copy += dice_.Between(1, 3 * plan_.step);
    After(copy, [this, each, b] { Arrive(each, b); });
  }
}

void Job::Arrive(uint32_t r, model::Boundary b) {
  Round& round = rounds_[b];
  round.arrived[r] = true;
  if (r == 0 && !round.fails[0] && round.epoch == leader_rank().agreement->epoch()) Report(b, round);
  if (ranks_[r].waiting && ranks_[r].boundary == b + 1) GoOn(r, false);
  rounds_.erase(rounds_.begin(), rounds_.lower_bound(b > 70 ? b - 70 : 0));
}

void Job::PlanStop(Stop stop, model::Boundary after) {
  model::Boundary b = after;
  for (const Rank& rank : ranks_) b = std::max(b, rank.boundary);
  stops_.try_emplace(b + 2, stop);
}

void Job::StopAt(uint32_t r) {
  const model::Boundary b = ranks_[r].boundary;
  if (++stopped_[b] < ranks_.size()) return;
  const uint64_t generation = generation_;
  AllStopped(stops_[b]);
  if (generation != generation_ || ending_ || Blocked()) return;
  for (uint32_t each = 0; each < ranks_.size(); ++each) StartStep(each);
}

}  // namespace gyrostat::simulation
