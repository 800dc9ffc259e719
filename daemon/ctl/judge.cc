#include "ctl/judge.h"

#include <array>
#include <map>
#include <utility>
#include <variant>

#include "engine/run.h"

namespace gyrostat::ctl {
namespace {

constexpr std::array<std::string_view, 1> kRules = {"gyrostat"};

class EngineJudge : public Judge {
 public:
  EngineJudge(const model::ModelSpec& spec, const model::AttnLogitInfo& attn) : run_("replay", 1, {}) {
    hello_.model = spec;
    hello_.attn_logit = attn;
    report_.body.emplace<engine::ReportEvent>();
  }

  std::string_view rules() const override { return kRules[0]; }

  void OnAttempt() override {
    // Any id will do, as long as each attempt has its own.
    ++attempt_;
    for (size_t i = 0; i < sizeof attempt_; ++i) hello_.attempt.bytes[i] = static_cast<uint8_t>(attempt_ >> (8 * i));
    std::get<engine::ReportEvent>(report_.body).attempt = hello_.attempt;
    engine::Event event;
    event.body = engine::HelloEvent{hello_};
    Apply(event);
  }

  void OnReport(const model::Report& report) override {
    std::get<engine::ReportEvent>(report_.body).report = report;
    Apply(report_);
  }

  std::vector<model::Finding> Findings() const override {
    std::vector<model::Finding> findings;
    findings.reserve(findings_.size());
    for (const auto& [id, finding] : findings_) findings.push_back(finding);
    return findings;
  }

 private:
  void Apply(const engine::Event& event) {
    run_.Apply(event, &out_);
    for (model::Finding& finding : out_.findings) findings_[finding.id] = std::move(finding);
  }

  engine::Run run_;
  engine::RunOutput out_;
  engine::Event report_;
  model::Hello hello_;
  uint64_t attempt_ = 0;
  std::map<uint64_t, model::Finding> findings_;  // Ids count up in the order of saying.
};

}  // namespace

std::span<const std::string_view> RuleNames() { return kRules; }

std::unique_ptr<Judge> MakeJudge(std::string_view, const model::ModelSpec& spec, const model::AttnLogitInfo& attn) {
  return std::make_unique<EngineJudge>(spec, attn);
}

}  // namespace gyrostat::ctl
