// How findings write numbers, and the state of a detector that is one type with Fields().
#pragma once

#include <cstdint>
#include <string>

#include "base/archive.h"
#include "detect/detector.h"

namespace gyrostat::detect {

// printf into a string; for sentences, at most 511 characters.
[[gnu::format(printf, 1, 2)]] std::string Sentence(const char* format, ...);

inline long long Printable(int64_t step) { return static_cast<long long>(step); }

// One more, or the largest there is.
inline uint32_t Saturating(uint32_t v) { return v == UINT32_MAX ? v : v + 1; }

// "1 head", "2 heads".
std::string Counted(uint32_t count, const char* noun);

// "A restart at step 7 ended it."
std::string EndedBy(Break kind, model::Step step);

// `version` changes whenever the fields do: older bytes are then foreign.
template <class State>
void SaveState(uint8_t version, const State& state, base::ByteWriter* out) {
  out->Put(version);
  base::SaveTo(out, state);
}

// `*state` is replaced by what was saved, or by a copy of `fresh`.
template <class State>
bool LoadState(uint8_t version, const State& fresh, base::ByteReader* in, State* state) {
  *state = fresh;
  if (in->Get<uint8_t>() == version && base::LoadFrom(in, state)) return true;
  *state = fresh;
  return false;
}

}  // namespace gyrostat::detect
