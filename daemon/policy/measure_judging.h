// What measures did: reads the outcome of what was applied, disables a kind that fails, and ends what an attempt or an
// epoch takes with it.
//
// warmup_extension, deepnorm_alpha, lr_scale, grad_clip   by the gauge of what called for them (effect.h)
// skip_step      by the loss of 20 reports on each side
// checkpoint     once the job took the request
// rollback, halt once the history or the attempt ended; ineffective if it went on for 200 steps
#pragma once

#include <cstdint>
#include <string>

#include "policy/measure_flow.h"
#include "policy/measures.h"

namespace gyrostat::policy {

// Failures may disable the kind.
void JudgeMeasures(const Desk& desk, const model::Report& report, const Levels& levels);

// It was applied at `boundary`: opens what it is judged by, or judges what needs no time.
void BeginJudging(const Desk& desk, const model::Order& order, model::Boundary boundary, Measure* measure);

// Somebody looked at it: kinds that disabled themselves, and pauses, get another chance.
void ForgiveMeasures(const Desk& desk);

// The attempt ended, or the weights got another history: what was asked for with a rollback or halt is there; the rest
// ends with `sentence`.
enum class HistoryEnd : uint8_t { kAttempt, kEpoch };
void EndMeasureHistory(const Desk& desk, HistoryEnd end, const std::string& sentence);

}  // namespace gyrostat::policy
