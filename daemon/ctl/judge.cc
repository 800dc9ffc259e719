#include "ctl/judge.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "detect/catalog.h"
#include "engine/run.h"

namespace gyrostat::ctl {
namespace {

constexpr std::string_view kOurs = "gyrostat";

class EngineJudge : public Judge {
 public:
  EngineJudge(const model::ModelSpec& spec, const model::AttnLogitInfo& attn, const engine::RunOptions& thresholds)
      : run_("replay", 1, thresholds) {
    hello_.model = spec;
    hello_.attn_logit = attn;
    report_.body.emplace<engine::ReportEvent>();
  }

  std::string_view rules() const override { return kOurs; }

  void OnAttempt() override {
    // Any id will do, as long as each attempt has its own.
    ++attempt_;
    for (size_t i = 0; i < sizeof attempt_; ++i) hello_.attempt.bytes[i] = static_cast<uint8_t>(attempt_ >> (8 * i));
    std::get<engine::ReportEvent>(report_.body).attempt = hello_.attempt;
    engine::Event event;
    event.body = engine::HelloEvent{hello_};
    Apply(event);
  }

  void OnModel(const model::ModelSpec& spec, const model::AttnLogitInfo& attn) override {
    hello_.model = spec;
    hello_.attn_logit = attn;
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
  std::vector<diagnose::Diagnosis> Episodes() const override {
    std::vector<diagnose::Diagnosis> episodes;
    episodes.reserve(episodes_.size());
    for (const auto& [id, diagnosis] : episodes_) episodes.push_back(diagnosis);
    return episodes;
  }

 private:
  void Apply(const engine::Event& event) {
    run_.Apply(event, &out_);
    for (model::Finding& finding : out_.findings) findings_[finding.id] = std::move(finding);
    for (engine::EpisodeChange& change : out_.episodes) {
      for (const uint64_t id : change.joined) findings_[id].episode = change.diagnosis.episode;
      episodes_[change.diagnosis.episode] = std::move(change.diagnosis);
    }
  }

  engine::Run run_;
  engine::RunOutput out_;
  engine::Event report_;
  model::Hello hello_;
  uint64_t attempt_ = 0;
  std::map<uint64_t, model::Finding> findings_;  // Ids count up in the order of saying.
  std::map<uint64_t, diagnose::Diagnosis> episodes_;
};

// The rules of another tool: detectors alone, as no engine runs them.
class RivalJudge : public Judge {
 public:
  RivalJudge(std::string_view rules, const model::ModelSpec& spec)
      : rules_(rules), detectors_(detect::MakeRuleSet(rules, detect::DetectOptions(), spec)) {}

  std::string_view rules() const override { return rules_; }

  void OnAttempt() override {
    if (!started_) {
      started_ = true;
      return;
    }
    for (const auto& detector : detectors_) detector->OnBreak(detect::Break::kNewAttempt, step_, &said_);
    Take();
  }

  void OnModel(const model::ModelSpec&, const model::AttnLogitInfo&) override {}  // They know of none.

  void OnReport(const model::Report& report) override {
    step_ = report.step;
    for (const auto& detector : detectors_) detector->Observe(report, &said_);
    Take();
  }

  std::vector<model::Finding> Findings() const override { return findings_; }

 private:
  // What is said again replaces what was said under its key.
  void Take() {
    for (model::Finding& finding : said_) {
      const auto [at, fresh] = places_.emplace(std::pair(finding.detector, finding.key), findings_.size());
      if (fresh) findings_.push_back(std::move(finding));
      else findings_[at->second] = std::move(finding);
    }
    said_.clear();
  }

  std::string_view rules_;
  std::vector<std::unique_ptr<detect::Detector>> detectors_;
  bool started_ = false;
  model::Step step_ = 0;
  std::vector<model::Finding> said_, findings_;
  std::map<std::pair<std::string, uint64_t>, size_t> places_;
};

}  // namespace

std::span<const std::string_view> RuleNames() {
  static const std::vector<std::string_view> names = detect::RuleSetNames();
  return names;
}

std::unique_ptr<Judge> MakeJudge(std::string_view rules, const model::ModelSpec& spec,
                                 const model::AttnLogitInfo& attn, const engine::RunOptions& thresholds) {
  if (rules == kOurs) return std::make_unique<EngineJudge>(spec, attn, thresholds);
  return std::make_unique<RivalJudge>(*std::ranges::find(RuleNames(), rules), spec);
}

}  // namespace gyrostat::ctl
