#include "scenario/player.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "config/config.h"

namespace gyrostat::scenario {
namespace {

constexpr int64_t kTickMs = 1000;

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}
std::string Whole(int64_t value) { return std::to_string(value); }

std::string Quoteless(std::string text) {
  for (char& c : text)
    if (c == '"') c = '\'';
  return text;
}

}  // namespace

Player::Player(const Script& script) : script_(script), client_(&script) {}

bool Player::ReadOptions(const std::string& yaml, int line) {
  yaml_ += yaml;
  const absl::StatusOr<config::Config> config = config::Parse(yaml_, "config");
  if (!config.ok()) {
    error_ = "line " + std::to_string(line) + ": " + std::string(config.status().message());
    return false;
  }
  options_ = config->engine.run;
  return true;
}

std::vector<Said> Player::Play(std::string* error) {
  if (ReadOptions(script_.yaml, 1)) {
    run_ = std::make_unique<engine::Run>("scenario", 1, options_);
    now_.unix_ms = 1700000000000;
    Connect();
    auto at = script_.ats.begin();
    for (uint64_t step = 0; step <= script_.steps && error_.empty(); ++step) {
      for (; at != script_.ats.end() && at->step == step; ++at) {
        step_ = step;
        Act(*at);
      }
      if (step < script_.steps) Step(step);
    }
    NoteEnd();
  }
  *error = error_;
  return std::move(said_);
}

void Player::Tick(int64_t ms) {
  now_.mono_ms += ms;
  now_.unix_ms += ms;
  Feed(engine::TickEvent{});
}

void Player::Step(uint64_t at) {
  step_ = at;
  Tick(script_.run.step_ms);
  const model::Report report = client_.MakeReport(at);
  if (!connected_) {
    held_.push_back(report);
    const std::vector<model::Ack> acks = client_.Apply();
    held_acks_.insert(held_acks_.end(), acks.begin(), acks.end());
    return;
  }
  Feed(engine::ReportEvent{client_.attempt(), report});
  Deliver(client_.Apply());
}

void Player::Deliver(const std::vector<model::Ack>& acks) {
  for (const model::Ack& ack : acks) {
    Said said{step_, "ack", {Token(ack.outcome)}, {}};
    said.fields["heads"] = Whole(static_cast<int64_t>(ack.applied.size()));
    if (!ack.reason.empty()) said.fields["reason"] = ack.reason;
    Note(std::move(said));
    Feed(engine::AckEvent{client_.attempt(), ack});
  }
}

void Player::Connect() {
  connected_ = true;
  model::Hello hello = client_.MakeHello();
  if (!held_.empty()) hello.first_sequence = held_.front().sequence;
  Feed(engine::HelloEvent{std::move(hello)});
  for (model::Report& report : std::exchange(held_, {}))
    Feed(engine::ReportEvent{client_.attempt(), std::move(report)});
  Deliver(std::exchange(held_acks_, {}));
}

void Player::Act(const AtLine& at) {
  const auto intent = [&]() -> std::string {
    if (!at.intent.empty()) return "scenario/" + at.intent;
    for (const model::Intervention& open : run_->View().open_interventions)
      if (open.state == model::InterventionState::kProposed) return open.id;
    return "scenario/0";
  };
  switch (at.action) {
    case Action::kMode: return Feed(engine::ModeEvent{at.mode, "operator", "scenario"});
    case Action::kApprove: return Feed(engine::ApproveEvent{intent(), "operator", at.reason});
    case Action::kReject: return Feed(engine::RejectEvent{intent(), "operator", at.reason});
    case Action::kConfig:
      if (ReadOptions(at.yaml, at.line)) Feed(engine::OptionsEvent{options_});
      return;
    case Action::kClient: return client_.set_behaviour(at.client);
    case Action::kRestart:
      client_.Restart(at.from.value_or(client_.next_step()),
                      at.keeps_state ? SimClient::State::kKept : SimClient::State::kLost);
      held_.clear();
      held_acks_.clear();
      return Connect();
    case Action::kRollback:
      client_.Rollback(at.from.value_or(client_.next_step()));
      return Connect();
    case Action::kDisconnect:
      connected_ = false;
      return client_.Disconnect();
    case Action::kReconnect: return Connect();
    case Action::kReload: {
      const std::string saved = run_->Save();
      run_ = std::make_unique<engine::Run>("scenario", 1, options_);
      if (!run_->Load(saved) || run_->Save() != saved)
        error_ = "line " + std::to_string(at.line) + ": the run did not come back";
      client_.Disconnect();
      return Connect();
    }
    case Action::kWait:
      for (int64_t left = at.wait_ms; left > 0; left -= kTickMs) Tick(std::min(left, kTickMs));
      return;
    case Action::kPropose: {
      policy::Proposal proposal = at.proposal;
      proposal.author = "operator";
      return Feed(engine::ProposeEvent{std::move(proposal)});
    }
    case Action::kAgain: return client_.TakeAgain();
    case Action::kBye: return Feed(engine::ByeEvent{client_.attempt(), "finished"});
  }
}

void Player::Feed(engine::EventBody body) {
  engine::RunOutput out;
  run_->Apply(engine::Event{now_, std::move(body)}, &out);
  if (!out.status.ok()) {
    std::string code = absl::StatusCodeToString(out.status.code());
    for (char& c : code) c = static_cast<char>(std::tolower(c));
    Note({step_, "refused", {code}, {{"message", std::string(out.status.message())}}});
  }
  for (const model::Finding& finding : out.findings) NoteFinding(finding);
  for (const engine::EpisodeChange& change : out.episodes) {
    if (change.diagnosis.closed) NoteEpisode(change.diagnosis), episodes_.erase(change.diagnosis.episode);
    else episodes_[change.diagnosis.episode] = change.diagnosis;
  }
  for (const model::Decision& decision : out.policy.decisions)
    Note({step_, "decision", {Token(decision.kind), decision.acted ? "yes" : "no"}, {{"reason", decision.reason}}});
  for (const model::Intervention& intervention : out.policy.changed) NoteIntervention(intervention);
  for (const model::Order& order : out.policy.orders) {
    NoteOrder(order);
    if (connected_) client_.Take(order);
  }
}

void Player::Note(Said said) {
  for (auto& [key, value] : said.fields) value = Quoteless(value);
  said_.push_back(std::move(said));
}

void Player::NoteFinding(const model::Finding& finding) {
  Said said{step_, "finding", {finding.detector, Token(finding.severity)}, {}};
  const auto [at, fresh] = open_.emplace(std::pair{finding.detector, finding.id}, finding.severity);
  said.words.push_back(finding.step_end ? "ends" : fresh ? "begins" : "worsens");
  if (finding.step_end) {
    open_.erase(at);
    said.fields["end"] = Whole(*finding.step_end);
    if (finding.healed) said.words.push_back(*finding.healed ? "healed" : "unhealed");
  }
  said.fields["begin"] = Whole(finding.step_begin);
  if (finding.layer) said.fields["layer"] = Whole(*finding.layer);
  if (finding.head) said.fields["head"] = Whole(*finding.head);
  if (finding.signal != model::Signal::kNone) said.fields["signal"] = model::SignalName(finding.signal);
  said.fields["recommend"] = finding.recommend ? Token(*finding.recommend) : "none";
  said.fields["value"] = Number(finding.value);
  said.fields["expected"] = Number(finding.expected);
  said.fields["message"] = finding.message;
  Note(std::move(said));
}

// Once: when it closes, or at the end.
void Player::NoteEpisode(const diagnose::Diagnosis& episode) {
  Said said{step_, "episode", {Token(episode.ranked.front().cause), Token(episode.severity)}, {}};
  said.words.push_back(episode.closed ? "closed" : "open");
  if (episode.healed) said.words.push_back(*episode.healed ? "healed" : "unhealed");
  if (episode.common_mode) said.words.push_back("common");
  said.fields["begin"] = Whole(episode.step_begin);
  if (episode.step_end) said.fields["end"] = Whole(*episode.step_end);
  said.fields["detector"] = episode.detector;
  said.fields["first"] = Whole(episode.first_step);
  if (episode.layer) said.fields["layer"] = Whole(*episode.layer);
  if (episode.head) said.fields["head"] = Whole(*episode.head);
  if (episode.rank) said.fields["rank"] = Whole(*episode.rank);
  if (episode.signal != model::Signal::kNone) said.fields["signal"] = model::SignalName(episode.signal);
  said.fields["recommend"] = episode.recommend ? Token(*episode.recommend) : "none";
  said.fields["findings"] = Whole(episode.findings);
  said.fields["headline"] = episode.headline;
  said.fields["advice"] = episode.advice;
  said.fields["likely"] = episode.likely;
  for (const std::string& line : episode.evidence) said.fields["evidence"] += line + " ";
  Note(std::move(said));
}

// Counts rise with each order; what is said is a new state or outcome.
void Player::NoteIntervention(const model::Intervention& intervention) {
  Said said{step_, "intervention", {Token(intervention.kind), Token(intervention.state)}, {}};
  if (intervention.outcome) said.words.push_back(Token(*intervention.outcome));
  std::string& last = states_[intervention.id];
  const std::string state = said.words[1] + (intervention.outcome ? Token(*intervention.outcome) : "");
  if (std::exchange(last, state) == state) return;
  said.fields["id"] = intervention.id.substr(intervention.id.rfind('/') + 1);
  said.fields["reason"] = intervention.reason;
  said.fields["author"] = intervention.author;
  said.fields["heads"] = Whole(intervention.heads);
  said.fields["orders"] = Whole(intervention.orders);
  said.fields["applied"] = Whole(intervention.orders_applied);
  said.fields["mode"] = Token(intervention.mode);
  if (intervention.step_applied) said.fields["first_applied"] = Whole(*intervention.step_applied);
  if (intervention.median_delay_boundaries) said.fields["delay"] = Number(*intervention.median_delay_boundaries);
  Note(std::move(said));
}

void Player::NoteOrder(const model::Order& order) {
  Said said{step_, "order", {Token(order.kind), Token(order.where), Token(order.variant)}, {}};
  said.fields["basis"] = Whole(static_cast<int64_t>(order.basis));
  said.fields["expires"] = Whole(static_cast<int64_t>(order.expires_boundary));
  said.fields["heads"] = Whole(static_cast<int64_t>(order.entries.size()));
  said.fields["tau"] = Number(order.tau);
  said.fields["id"] = order.intent_id.substr(order.intent_id.rfind('/') + 1);
  if (!order.sets.empty()) {
    said.fields["sets"] = Whole(static_cast<int64_t>(order.sets.size()));
    said.fields["ramp"] = Whole(order.ramp);
    said.fields["value"] = Number(static_cast<double>(order.sets[0].value));
  }
  if (!order.entries.empty()) {
    said.fields["layer"] = Whole(order.entries[0].layer);
    said.fields["head"] = Whole(order.entries[0].head);
    said.fields["max"] = Number(order.entries[0].reported_max);
  }
  Note(std::move(said));
}

void Player::NoteEnd() {
  step_ = script_.steps;
  for (const auto& [id, episode] : episodes_) NoteEpisode(episode);
  const engine::RunState view = run_->View();
  Note({step_, "peak", {}, {{"logit", Number(client_.peak_logit())}}});
  Note({step_, "last", {}, {{"logit", Number(client_.last_logit())}}});
  Note({step_, "mode", {Token(view.mode)}, {}});
  Note({step_, "life", {Token(view.life)}, {}});
  Note({step_, "pending", {}, {{"count", Whole(view.interventions_pending)}}});
  for (const auto& [id, reading] : client_.registers())
    Note({step_, "register", {}, {{"id", Whole(id)}, {"value", Number(static_cast<double>(reading.to))},
                                  {"version", Whole(reading.version)}}});
  for (uint32_t layer = 0; layer < script_.run.spec.layers; ++layer) {
    for (uint32_t head = 0; head < script_.run.spec.heads; ++head) {
      const std::string nats = Number(client_.nats(layer, head));
      Note({step_, "ledger", {}, {{"layer", Whole(layer)}, {"head", Whole(head)}, {"nats", nats}}});
    }
  }
}

}  // namespace gyrostat::scenario
