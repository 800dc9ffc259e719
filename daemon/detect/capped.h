// A detector whose findings are never said as severer than a maximum: for somebody whom it need not page.
//
// What it recommends stays, and so does its state: the bytes it saves are those of the detector inside, so that a cap
// comes and goes without a blind window. Where a condition gets worse than the cap, the finding is said again with what
// is new, at the same severity.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "detect/detector.h"

namespace gyrostat::detect {

class Capped : public Detector {
 public:
  Capped(std::unique_ptr<Detector> inside, model::Severity severity_max)
      : inside_(std::move(inside)), severity_max_(severity_max) {}

  std::string_view name() const override { return inside_->name(); }
  void Observe(const model::Report& report, std::vector<model::Finding>* out) override {
    const size_t said = out->size();
    inside_->Observe(report, out);
    Cap(said, out);
  }
  void OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) override {
    const size_t said = out->size();
    inside_->OnBreak(kind, step, out);
    Cap(said, out);
  }
  std::optional<double> StepsLeft() const override { return inside_->StepsLeft(); }
  void Save(base::ByteWriter* out) const override { inside_->Save(out); }
  bool Load(base::ByteReader* in) override { return inside_->Load(in); }

 private:
  void Cap(size_t from, std::vector<model::Finding>* out) const {
    for (size_t i = from; i < out->size(); ++i) (*out)[i].severity = std::min((*out)[i].severity, severity_max_);
  }

  std::unique_ptr<Detector> inside_;
  model::Severity severity_max_;
};

}  // namespace gyrostat::detect
