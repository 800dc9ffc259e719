#include "ctl/history_notes.h"

#include <algorithm>

namespace gyrostat::ctl {
namespace {

constexpr int kRangesShown = 8;

std::string What(const std::string& resolution) {
  if (resolution == "heads") return "of values of heads only the worst of each layer, and the worst of all, are kept";
  if (resolution == "extremes") return "only the smallest and the largest value of every few reports are kept";
  return "kept at resolution \"" + resolution + "\"";
}

}  // namespace

std::string RenderNotes(const v1::HistoryNotes& notes) {
  std::string text;
  const auto line = [&text](const std::string& sentence) { text += "gyrostatctl: " + sentence + ".\n"; };
  for (int i = 0; i < std::min(notes.reduced_size(), kRangesShown); ++i) {
    const v1::ReducedRange& range = notes.reduced(i);
    line("steps " + std::to_string(range.from_step()) + " to " + std::to_string(range.to_step()) +
         " are reduced: " + What(range.resolution()));
  }
  if (notes.reduced_size() > kRangesShown)
    line("and " + std::to_string(notes.reduced_size() - kRangesShown) + " more ranges of steps are reduced");
  if (notes.reports_dropped() > 0)
    line("reports that are missing because they were dropped, by age or by a limit of size, or are damaged on disk: " +
         std::to_string(notes.reports_dropped()));
  if (notes.chunks_damaged() > 0)
    line("damaged pieces of the history that were passed over, up to 64 reports each: " +
         std::to_string(notes.chunks_damaged()));
  return text;
}

void ExportNotes::Take(const v1::ExportChunk& chunk) {
  notes_.set_reports_dropped(notes_.reports_dropped() + chunk.reports_lost());
  if (chunk.reports_size() == 0 || chunk.resolution().empty() || chunk.resolution() == "full") return;
  const auto [first, last] = std::ranges::minmax_element(chunk.reports(), {}, &v1::Report::step);
  v1::ReducedRange* range =
      notes_.reduced_size() > 0 ? notes_.mutable_reduced(notes_.reduced_size() - 1) : nullptr;
  if (range == nullptr || range->resolution() != chunk.resolution() || first->step() < range->from_step()) {
    range = notes_.add_reduced();
    range->set_from_step(first->step());
    range->set_to_step(last->step());
    range->set_resolution(chunk.resolution());
  }
  range->set_to_step(std::max(range->to_step(), last->step()));
}

}  // namespace gyrostat::ctl
