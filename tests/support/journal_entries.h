// Journal entries as the engine makes them, and an Append that waits for the answer.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "engine/ports.h"
#include "support/plain_run.h"

namespace gyrostat::testing {

inline engine::JournalEntry PlainEntry(const std::string& run, uint64_t number, const model::AttemptId& attempt) {
  engine::JournalEntry entry;
  entry.run = run;
  entry.run_number = number;
  entry.attempt = attempt;
  entry.at = {1000, 1'700'000'000'000};
  return entry;
}

// The first entry of a run: it has a snapshot.
inline engine::JournalEntry HelloEntry(const std::string& run, uint64_t number, const model::AttemptId& attempt) {
  engine::JournalEntry entry = PlainEntry(run, number, attempt);
  entry.hello = PlainHello(run, attempt);
  entry.snapshot = "snapshot at hello";
  entry.event = engine::Encode({entry.at, engine::HelloEvent{*entry.hello}});
  return entry;
}

inline engine::JournalEntry ReportEntry(const std::string& run, uint64_t number, const model::AttemptId& attempt,
                                        const model::Report& report) {
  engine::JournalEntry entry = PlainEntry(run, number, attempt);
  entry.event = engine::Encode({entry.at, engine::ReportEvent{attempt, report}});
  return entry;
}

// Appends and waits: what the journal said.
inline bool AppendAndWait(engine::Journal* journal, engine::JournalEntry entry) {
  const auto settled = std::make_shared<std::promise<bool>>();
  std::future<bool> answer = settled->get_future();
  entry.done = [settled](bool durable) { settled->set_value(durable); };
  journal->Append(std::move(entry));
  if (answer.wait_for(std::chrono::seconds(300)) != std::future_status::ready) return false;
  return answer.get();
}

}  // namespace gyrostat::testing
