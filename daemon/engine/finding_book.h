// The findings of one run: gives each its id, knows which are open, counts them.
//
// Ids are made from the run's number and a counter of the run, so that a replay gives the same ones whatever other runs
// did meanwhile. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "model/finding.h"

namespace gyrostat::engine {

// The n-th finding of run r is called r * kFindingsPerRun + n: short enough to type, unique in the data directory as
// long as a run has fewer than ten million, and exact as a JSON number.
inline constexpr uint64_t kFindingsPerRun = 10'000'000;

class FindingBook {
 public:
  explicit FindingBook(uint64_t run_number) : run_number_(run_number) {}

  // A detector's word about a condition: begin, escalation or end, told apart by its name and key. Appends it with its
  // id.
  void Take(model::Finding finding, std::vector<model::Finding>* out);

  // Ends what `detector` left open, at `step`: it is gone or starts anew and will not end them itself.
  void End(std::string_view detector, model::Step step, std::vector<model::Finding>* out);
  // Drops them without a word; for a detector whose saved state cannot be read.
  void Forget(std::string_view detector);

  // The finding, if it is still open, belongs to the episode that it names from now on.
  void SetEpisode(const model::Finding& finding);

  // In order of ids.
  std::vector<model::Finding> Open() const;
  // By "detector/severity"; an escalation counts under its new severity too.
  std::vector<std::pair<std::string, uint64_t>> Totals() const { return {totals_.begin(), totals_.end()}; }

  template <class Archive>
  void Fields(Archive& a) { a(run_number_, count_, open_, totals_); }

 private:
  void Count(const model::Finding& finding);

  uint64_t run_number_;
  uint64_t count_ = 0;
  std::map<std::pair<std::string, uint64_t>, model::Finding> open_;  // By detector and key.
  std::map<std::string, uint64_t> totals_;
};

}  // namespace gyrostat::engine
