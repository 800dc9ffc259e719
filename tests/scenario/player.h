// Plays a scenario through a real engine::Run and keeps what it says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/run.h"
#include "scenario/expectations.h"
#include "scenario/script.h"
#include "scenario/sim_client.h"

namespace gyrostat::scenario {

class Player {
 public:
  explicit Player(const Script& script);

  // Everything that was said, answers to questions about the end last. `*error` is a line about the script where a
  // config key is wrong.
  std::vector<Said> Play(std::string* error);

 private:
  void Act(const AtLine& at);
  void Step(uint64_t at);
  void Tick(int64_t ms);
  void Feed(engine::EventBody body);
  void Deliver(const std::vector<model::Ack>& acks);
  void Connect();
  void Note(Said said);
  void NoteEpisode(const diagnose::Diagnosis& episode);
  void NoteFinding(const model::Finding& finding);
  void NoteIntervention(const model::Intervention& intervention);
  void NoteOrder(const model::Order& order);
  void NoteEnd();
  bool ReadOptions(const std::string& yaml, int line);

  const Script& script_;
  engine::RunOptions options_;
  std::string yaml_;
  std::unique_ptr<engine::Run> run_;
  SimClient client_;
  engine::Stamp now_;
  uint64_t step_ = 0;
  bool connected_ = true;
  std::vector<model::Report> held_;     // Of a client without a stream.
  std::vector<model::Ack> held_acks_;
  std::map<std::pair<std::string, uint64_t>, model::Severity> open_;  // Findings, to tell begin from worsen.
  std::map<uint64_t, diagnose::Diagnosis> episodes_;  // As last said, until they close.
  std::map<std::string, std::string> states_;  // Intents, to tell a change of state from a change of counts.
  std::vector<Said> said_;
  std::string error_;
};

}  // namespace gyrostat::scenario
