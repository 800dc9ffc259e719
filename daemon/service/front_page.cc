#include "service/front_page.h"

#include "model/intervention.h"

namespace gyrostat::service {
namespace {

// More are counted, not shown.
constexpr size_t kRunsShownMax = 50;

}  // namespace

std::string FrontPage(const std::string& version, const std::string& not_ready_reason,
                      const std::vector<std::shared_ptr<const engine::RunState>>& runs, bool has_page) {
  std::string text = "gyrostatd " + version + "\n\n" +
                     (not_ready_reason.empty() ? "ready" : "not ready: " + not_ready_reason) + "\n\n" +
                     (has_page ? "/                 the live page, in a browser\n" : "") +
                     "/api/runs         what the page shows, as JSON\n"
                     "/metrics          for Prometheus\n"
                     "/metrics/heads    ?run=NAME&layers=0-7,12: every head of some layers\n"
                     "/healthz          200 while the process answers\n"
                     "/readyz           200 while it takes reports and records them; else 503 and why\n\n"
                     "In a terminal: gyrostatctl runs, gyrostatctl watch RUN, gyrostatctl findings RUN\n\n" +
                     std::to_string(runs.size()) + (runs.size() == 1 ? " run" : " runs") + "\n";
  for (size_t i = 0; i < runs.size() && i < kRunsShownMax; ++i) {
    const engine::RunState& run = *runs[i];
    text += "  " + run.run + "  " + Token(run.life) + "  step " + std::to_string(run.step) + "  " + Token(run.mode) +
            "  open findings " + std::to_string(run.open_findings.size()) + "\n";
  }
  if (!has_page)
    text += "\nThe live page was not built into this gyrostatd: npm was missing, or reached no registry. Install the\n"
            "packages nodejs and npm (deploy/install page), configure (cmake --preset release) and build again.\n";
  if (runs.size() > kRunsShownMax) text += "  ... gyrostatctl runs shows all\n";
  return text;
}

}  // namespace gyrostat::service
