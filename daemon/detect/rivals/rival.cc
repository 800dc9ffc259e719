#include "detect/rivals/rival.h"

#include "detect/text.h"

namespace gyrostat::detect::rivals {
namespace {

constexpr uint8_t kStateVersion = 1;

}  // namespace

void Rival::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const Verdict verdict = Judge(report);
  if (!verdict.fired) {
    if (condition_.open())
      condition_.End(last_fired_, std::nullopt,
                     Sentence("The rule no longer fires, from step %lld on.", Printable(report.step)), out);
    return;
  }
  last_fired_ = report.step;
  if (condition_.open()) {
    if (verdict.severity <= condition_.finding().severity) return;
  } else {
    condition_.Open(name(), verdict.signal, report.step, report.step, &next_key_);
  }
  model::Finding& finding = condition_.finding();
  finding.severity = verdict.severity;
  finding.value = verdict.value;
  finding.expected = verdict.limit;
  finding.message = Sentence("%s is %.6g at step %lld, where the limit of this rule is %.6g.",
                             std::string(model::SignalName(verdict.signal)).c_str(), verdict.value,
                             Printable(report.step), verdict.limit);
  condition_.Say(out);
}

void Rival::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind != Break::kNewAttempt) return;
  if (condition_.open()) condition_.End(last_fired_, std::nullopt, EndedBy(kind, step), out);
  Restart();
}

void Rival::Save(base::ByteWriter* out) const {
  out->Put(kStateVersion);
  base::SaveArchive archive(out);
  Rival* self = const_cast<Rival*>(this);  // Fields() is one function for both directions; saving changes nothing.
  archive(self->condition_, self->last_fired_, self->next_key_);
  SaveRule(&archive);
}

bool Rival::Load(base::ByteReader* in) {
  base::LoadArchive archive(in);
  if (in->Get<uint8_t>() == kStateVersion) {
    archive(condition_, last_fired_, next_key_);
    LoadRule(&archive);
    if (in->ok()) return true;
  }
  condition_ = Condition();
  last_fired_ = 0;
  next_key_ = 1;
  ClearRule();
  return false;
}

}  // namespace gyrostat::detect::rivals
