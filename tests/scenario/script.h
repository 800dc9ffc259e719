// A scenario as parsed: the picture of a run and what must be said about it. README.md explains the language.
//
// Parsing is strict: an unknown word, a value out of range or a missing line is an error with its line number. It
// judges untrusted text (tests/fuzz), so everything is bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/intervention.h"
#include "model/model_spec.h"
#include "model/signal.h"
#include "policy/proposal.h"

namespace gyrostat::scenario {

inline constexpr size_t kTextBytesMax = 1 << 20;
inline constexpr size_t kValuesMax = 1 << 20;  // Of all signal lines together.
inline constexpr uint32_t kLayersMax = 16, kHeadsMax = 16;

struct RunLine {
  model::ModelSpec spec;
  model::LogitKind kind = model::LogitKind::kExact;
  uint32_t world = 1;
  int64_t step_ms = 1000;
  std::vector<std::string> allow = {"qk_clip"};
  double tau_min = 0;
};

// Ranks with a slot in `rank_digest`.
inline uint32_t RankSlots(const RunLine& run) { return std::min(run.world, model::kRankSlotsMax); }

// How the simulated client treats orders.
enum class Answer : uint8_t { kApply, kRefuse, kIgnore };
struct ClientLine {
  uint64_t delay = 1;  // Boundaries from the report that an order answers to its application.
  Answer answer = Answer::kApply;
};

struct SignalLine {
  int line = 0;
  model::Signal signal = model::Signal::kNone;
  std::optional<uint32_t> layer, head;  // Nothing: all.
  std::vector<double> values;           // One for each step of the scenario.
};

enum class Action : uint8_t {
  kMode, kApprove, kReject, kConfig, kClient, kRestart, kRollback, kDisconnect, kReconnect, kReload, kWait, kBye,
  kPropose, kAgain,
};
struct AtLine {
  int line = 0;
  uint64_t step = 0;
  Action action = Action::kMode;
  model::Mode mode = model::Mode::kObserve;
  std::string intent, reason;          // approve, reject: empty intent is the only one that waits.
  std::string yaml;                    // config
  ClientLine client;                   // client: the whole new state.
  std::optional<model::Step> from;     // restart, rollback: the trainer's next step.
  bool keeps_state = false;            // restart: with the client's registers, as out of its checkpoint.
  policy::Proposal proposal = {};      // propose
  int64_t wait_ms = 0;
};

struct Range {
  double low = 0, high = 0;
};

// One `expect` line.
struct Expectation {
  int line = 0;
  std::string text;                    // As written, for messages.
  std::string kind;                    // finding decision intervention order refused, or a question about the end.
  std::optional<Range> step;
  std::vector<std::string> words;      // All must be said.
  std::map<std::string, std::string> fields;  // Equal as text, or within half a percent as numbers.
  std::map<std::string, Range> ranges;        // field=a..b
  std::map<std::string, std::string> parts;   // field~text: contains it.
};

struct Script {
  RunLine run;
  std::string yaml;                    // Of all config lines.
  ClientLine client;
  uint64_t steps = 0;
  std::vector<SignalLine> signals;
  std::vector<AtLine> ats;             // In order of steps.
  std::vector<Expectation> expectations;
};

// Fills `*script`, or returns "line N: what is wrong, what was wanted".
std::string Parse(std::string_view text, Script* script);

}  // namespace gyrostat::scenario
