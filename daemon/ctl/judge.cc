#include "ctl/judge.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "detect/catalog.h"
#include "engine/run.h"

namespace gyrostat::ctl {
namespace {

// Rule sets of detect/; the first is gyrostat's own.
const std::vector<std::string_view>& Rules() {
  static const std::vector<std::string_view> names = detect::RuleSetNames();
  return names;
}

class EngineJudge : public Judge {
 public:
  EngineJudge(const model::ModelSpec& spec, const model::AttnLogitInfo& attn) : run_("replay", 1, {}) {
    hello_.model = spec;
    hello_.attn_logit = attn;
    report_.body.emplace<engine::ReportEvent>();
  }

  std::string_view rules() const override { return Rules().front(); }

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

// Another tool's rules see the reports and nothing else, as they would inside their trainer.
class RivalJudge : public Judge {
 public:
  RivalJudge(std::string_view rules, const model::ModelSpec& spec)
      : rules_(rules), detectors_(detect::MakeRuleSet(rules, {}, spec)) {}

  std::string_view rules() const override { return rules_; }

  void OnAttempt() override {
    if (std::exchange(started_, true))
      for (size_t i = 0; i < detectors_.size(); ++i) {
        detectors_[i]->OnBreak(detect::Break::kNewAttempt, last_step_, &said_);
        Keep(i);
      }
  }

  void OnReport(const model::Report& report) override {
    last_step_ = report.step;
    for (size_t i = 0; i < detectors_.size(); ++i) {
      detectors_[i]->Observe(report, &said_);
      Keep(i);
    }
  }

  std::vector<model::Finding> Findings() const override { return findings_; }

 private:
  // Keys are a detector's own.
  void Keep(size_t detector) {
    for (model::Finding& finding : said_) {
      const auto [place, is_new] = places_.try_emplace({detector, finding.key}, findings_.size());
      if (is_new) findings_.push_back(std::move(finding));
      else findings_[place->second] = std::move(finding);
    }
    said_.clear();
  }

  std::string_view rules_;
  std::vector<std::unique_ptr<detect::Detector>> detectors_;
  bool started_ = false;
  model::Step last_step_ = 0;
  std::vector<model::Finding> said_, findings_;
  std::map<std::pair<size_t, uint64_t>, size_t> places_;  // (detector, key) → index in findings_.
};

}  // namespace

std::span<const std::string_view> RuleNames() { return Rules(); }

std::unique_ptr<Judge> MakeJudge(std::string_view rules, const model::ModelSpec& spec,
                                 const model::AttnLogitInfo& attn) {
  if (rules == Rules().front()) return std::make_unique<EngineJudge>(spec, attn);
  return std::make_unique<RivalJudge>(*std::ranges::find(Rules(), rules), spec);
}

}  // namespace gyrostat::ctl
