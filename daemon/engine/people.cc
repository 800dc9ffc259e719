#include "engine/people.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace gyrostat::engine {
namespace {

constexpr size_t kAuthorBytesMax = 128, kReasonBytesMax = 1024;

// Up to five names.
std::string KnownRuns(const std::vector<std::shared_ptr<const RunState>>& runs) {
  if (runs.empty()) return "no run is known yet";
  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run->run);
  std::sort(names.begin(), names.end());
  constexpr size_t kNamesMax = 5;
  std::string text = "known:";
  for (size_t i = 0; i < std::min(names.size(), kNamesMax); ++i) text += " " + names[i];
  return names.size() > kNamesMax ? text + " and " + std::to_string(names.size() - kNamesMax) + " more" : text;
}

}  // namespace

std::string AuthorOf(std::string_view name) {
  return name.empty() ? "operator" : base::CleanText(name, kAuthorBytesMax);
}
std::string ReasonOf(std::string_view text) { return base::CleanText(text, kReasonBytesMax); }

absl::StatusOr<std::shared_ptr<const RunState>> FindRunFor(const Engine& engine, const std::string& run) {
  auto found = engine.FindRun(run);
  if (!absl::IsNotFound(found.status())) return found;
  return absl::NotFoundError("run " + run + " is not known; " + KnownRuns(engine.Runs()));
}

}  // namespace gyrostat::engine
