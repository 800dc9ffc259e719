#include "scenario/expectations.h"

#include <algorithm>
#include <cmath>

#include "detect/catalog.h"
#include "diagnose/diagnosis.h"
#include "model/finding.h"
#include "model/intervention.h"
#include "scenario/notation.h"

namespace gyrostat::scenario {
namespace {

using Names = std::set<std::string>;

// The words and fields of one kind of line.
struct Kind {
  Names words, fields;
};

template <class E>
void AddTokens(int first, int last, Names* names) {
  for (int i = first; i <= last; ++i) names->insert(Token(static_cast<E>(i)));
}

std::map<std::string, Kind> MakeKinds() {
  std::map<std::string, Kind> kinds;
  Kind& finding = kinds["finding"];
  finding.words = {"begins", "worsens", "ends", "healed", "unhealed", "policy"};
  for (const std::string_view name : detect::DetectorNames()) finding.words.emplace(name);
  AddTokens<model::Severity>(0, 2, &finding.words);
  finding.fields = {"begin", "end", "layer", "head", "signal", "recommend", "value", "expected", "message"};
  Kind& episode = kinds["episode"];
  episode.words = {"open", "closed", "healed", "unhealed", "common"};
  AddTokens<diagnose::Cause>(0, 14, &episode.words);
  AddTokens<model::Severity>(0, 2, &episode.words);
  episode.fields = {"begin", "end",  "detector", "first",  "layer",    "head",  "rank",
                    "signal", "recommend", "findings", "headline", "advice", "likely", "evidence"};
  Kind& decision = kinds["decision"];
  decision.words = {"yes", "no"};
  AddTokens<model::InterventionKind>(1, 10, &decision.words);
  decision.fields = {"reason"};
  Kind& intervention = kinds["intervention"];
  AddTokens<model::InterventionKind>(1, 10, &intervention.words);
  AddTokens<model::InterventionState>(1, 13, &intervention.words);
  AddTokens<model::Outcome>(1, 4, &intervention.words);
  intervention.fields = {"id", "reason", "author", "heads", "orders", "applied", "mode", "first_applied", "delay"};
  Kind& order = kinds["order"];
  order.words = {"remote", "local"};
  AddTokens<model::InterventionKind>(1, 10, &order.words);
  AddTokens<model::ClipVariant>(1, 5, &order.words);
  order.fields = {"basis", "expires", "heads", "tau", "layer", "head", "max", "id", "sets", "ramp", "value"};
  Kind& ack = kinds["ack"];
  AddTokens<model::AckOutcome>(1, 6, &ack.words);
  ack.fields = {"reason", "heads", "delay"};
  kinds["refused"].words = {"not_found", "failed_precondition", "invalid_argument"};
  kinds["refused"].fields = {"message"};
  // Questions about the end.
  kinds["peak"].fields = {"logit"};
  kinds["last"].fields = {"logit"};
  kinds["ledger"].fields = {"layer", "head", "nats"};
  kinds["register"].fields = {"id", "value", "version"};
  kinds["mode"].words = {"observe", "advise", "act"};
  kinds["life"].words = {"live", "silent", "ended"};
  kinds["pending"].fields = {"count"};
  return kinds;
}

const std::map<std::string, Kind>& Kinds() {
  static const std::map<std::string, Kind> kinds = MakeKinds();
  return kinds;
}

constexpr std::string_view kCounted[] = {"orders", "acks", "decisions", "episodes"};

std::string Join(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text.empty() ? "none" : text;
}

// Half a percent: what four printed digits are sure of.
bool NearlyEqual(double a, double b) { return std::fabs(a - b) <= 0.005 * std::max(std::fabs(a), std::fabs(b)); }

bool FieldIs(const std::string& seen, const std::string& wanted) {
  double a = 0, b = 0;
  if (seen == wanted) return true;
  const bool whole = wanted.find('.') == std::string::npos;  // A whole number means itself: step 100 is not step 100.4.
  return !whole && ReadNumber(seen, &a) && ReadNumber(wanted, &b) && NearlyEqual(a, b);
}

std::string ReadCounted(const std::vector<Word>& words, Expectation* expectation) {
  Range range;
  if (words.size() != 2 || !words[1].key.empty() || !ReadRange(words[1].value, &range))
    return "wanted a count or a range after `" + words[0].value + "`";
  expectation->ranges["count"] = range;
  return {};
}

}  // namespace

std::string Said::Line() const {
  std::string text = "expect " + kind + " step=" + std::to_string(step);
  for (const std::string& word : words) text += " " + word;
  for (const auto& [key, value] : fields) {
    const bool quote = value.empty() || value.find(' ') != std::string::npos || value.find('#') != std::string::npos;
    text += " " + key + "=" + (quote ? "\"" + value + "\"" : value);
  }
  return text;
}

std::string ReadExpectation(const std::vector<Word>& words, Expectation* expectation) {
  if (words.empty() || !words[0].key.empty()) return "wanted a kind after `expect`";
  expectation->kind = words[0].value;
  if (std::find(std::begin(kCounted), std::end(kCounted), expectation->kind) != std::end(kCounted))
    return ReadCounted(words, expectation);
  const auto kind = Kinds().find(expectation->kind);
  if (kind == Kinds().end()) {
    Names names = {"orders", "acks", "decisions", "episodes", "nothing more"};
    for (const auto& [name, unused] : Kinds()) names.insert(name);
    return "`" + expectation->kind + "`: wanted one of " + Join(names);
  }
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    Range range;
    if (word->key == "step") {
      if (word->mark != '=' || !ReadRange(word->value, &range)) return "step: wanted N or A..B";
      expectation->step = range;
    } else if (word->key.empty()) {
      if (kind->second.words.count(word->value) == 0)
        return "`" + word->value + "`: wanted one of " + Join(kind->second.words);
      expectation->words.push_back(word->value);
    } else if (kind->second.fields.count(word->key) == 0) {
      return "`" + word->key + "`: wanted one of " + Join(kind->second.fields);
    } else if (word->mark == '~') {
      expectation->parts[word->key] = word->value;
    } else if (word->value.find("..") != std::string::npos && ReadRange(word->value, &range)) {
      expectation->ranges[word->key] = range;
    } else {
      expectation->fields[word->key] = word->value;
    }
  }
  return {};
}

bool Matches(const Expectation& expectation, const Said& said) {
  if (expectation.kind != said.kind) return false;
  const auto step = static_cast<double>(said.step);
  if (expectation.step && (step < expectation.step->low || step > expectation.step->high)) return false;
  for (const std::string& word : expectation.words)
    if (std::find(said.words.begin(), said.words.end(), word) == said.words.end()) return false;
  const auto seen = [&said](const std::string& key) -> const std::string* {
    const auto it = said.fields.find(key);
    return it == said.fields.end() ? nullptr : &it->second;
  };
  for (const auto& [key, wanted] : expectation.fields)
    if (const std::string* value = seen(key); value == nullptr || !FieldIs(*value, wanted)) return false;
  for (const auto& [key, part] : expectation.parts)
    if (const std::string* value = seen(key); value == nullptr || value->find(part) == std::string::npos) return false;
  for (const auto& [key, range] : expectation.ranges) {
    const std::string* value = seen(key);
    double number = 0;
    if (value == nullptr || !ReadNumber(*value, &number) || number < range.low || number > range.high) return false;
  }
  return true;
}

std::vector<std::string> Compare(const std::vector<Expectation>& expectations, const std::vector<Said>& said) {
  std::vector<std::string> differences;
  std::vector<bool> matched(said.size(), false);
  std::map<std::string, size_t> next;  // By kind: where to look on.
  std::map<std::string, const Expectation*> counted;
  for (const Expectation& expectation : expectations) {
    if (expectation.ranges.count("count") != 0 && expectation.kind != "pending") {
      counted[expectation.kind.substr(0, expectation.kind.size() - 1)] = &expectation;
      continue;
    }
    size_t i = next[expectation.kind];
    while (i < said.size() && !Matches(expectation, said[i])) ++i;
    if (i == said.size()) {
      differences.push_back("line " + std::to_string(expectation.line) + ": not said: " + expectation.text);
      continue;
    }
    matched[i] = true;
    next[expectation.kind] = i + 1;
  }
  std::map<std::string, uint64_t> rest;
  static const Names kQuestions = {"peak", "last", "ledger", "register", "mode", "life", "pending"};
  const bool episodes = next.count("episode") != 0 || counted.count("episode") != 0;
  for (size_t i = 0; i < said.size(); ++i) {
    if (matched[i] || kQuestions.count(said[i].kind) != 0 || (said[i].kind == "episode" && !episodes)) continue;
    ++rest[said[i].kind];
    if (counted.count(said[i].kind) == 0 && said[i].kind != "ack")
      differences.push_back("not expected: " + said[i].Line());
  }
  for (const auto& [kind, expectation] : counted) {
    const auto count = static_cast<double>(rest[kind]);
    const Range& range = expectation->ranges.at("count");
    if (count < range.low || count > range.high)
      differences.push_back("line " + std::to_string(expectation->line) + ": " + std::to_string(rest[kind]) + " " +
                            expectation->kind + ": " + expectation->text);
  }
  return differences;
}

}  // namespace gyrostat::scenario
