#include "ctl/export.h"

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctl/commands.h"
#include "ctl/json.h"
#include "ctl/text.h"
#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

using model::Shape;

// The shortest decimal that reads back as the same number of its type.
template <class Real>
std::string Shortest(Real value) {
  std::array<char, 64> raw;
  return {raw.data(), std::to_chars(raw.data(), raw.data() + raw.size(), value).ptr};
}

// One value a step.
struct Column {
  std::string name;  // Of a signal, or of a scalar of the job's own.
  std::optional<uint32_t> layer, head;
  std::map<int64_t, double> values;

  // Arrays are floats, scalars doubles.
  std::string Decimal(double value) const { return layer ? Shortest(static_cast<float>(value)) : Shortest(value); }
};

class Exporter {
 public:
  Exporter(const Request& request, Control* control, const Console& console)
      : request_(request), control_(control), console_(console) {}

  absl::Status Fetch(const v1::RunView& view) {
    layers_ = view.model().layers();
    heads_ = view.model().heads();
    for (const model::SignalInfo& info : model::Signals()) {
      const absl::Status status = model::IsScalar(info.signal) ? FetchColumn(std::string(info.name), {}, {}, nullptr)
                                                               : FetchArray(info);
      if (!status.ok()) return status;
    }
    for (const v1::ScalarValue& each : view.scalars())
      if (model::FindSignal(each.signal()) == nullptr)
        if (const absl::Status status = FetchColumn(each.signal(), {}, {}, nullptr); !status.ok()) return status;
    return absl::OkStatus();
  }

  bool empty() const { return columns_.empty(); }

  void WriteCsv() const {
    console_.out << "step";
    for (const Column& each : columns_) {
      console_.out << "," << Escape(each.name);
      if (each.layer) console_.out << "/layer" << *each.layer;
      if (each.head) console_.out << "/head" << *each.head;
    }
    console_.out << "\n";
    for (const int64_t step : Steps()) {
      console_.out << step;
      for (const Column& each : columns_) {
        console_.out << ",";
        const auto it = each.values.find(step);
        if (it == each.values.end()) continue;
        console_.out << (std::isfinite(it->second) ? each.Decimal(it->second) : Number(it->second));
      }
      console_.out << "\n";
    }
  }

  void WriteJsonl(const v1::RunView& view) const {
    console_.out << JsonHeader(view) << "\n";
    for (const int64_t step : Steps()) {
      console_.out << "{\"step\":" << step;
      for (size_t begin = 0; begin < columns_.size();) {
        size_t end = begin + 1;
        while (end < columns_.size() && columns_[end].name == columns_[begin].name) ++end;
        WriteSignal(begin, end, step);
        begin = end;
      }
      console_.out << "}\n";
    }
  }

 private:
  // `*there`, where given, says whether the run has such a layer or head at all.
  absl::Status FetchColumn(const std::string& name, std::optional<uint32_t> layer, std::optional<uint32_t> head,
                           bool* there) {
    v1::GetSeriesRequest wire;
    wire.set_run(request_.run);
    wire.set_signal(name);
    if (layer) wire.set_layer(*layer);
    if (head) wire.set_head(*head);
    Column column{name, layer, head, {}};
    const absl::Status status =
        control_->GetSeries(wire, [&column](int64_t step, double value) { column.values[step] = value; });
    if (there != nullptr) *there = status.ok() && !column.values.empty();
    if (absl::IsInvalidArgument(status) && there != nullptr) return absl::OkStatus();
    if (status.ok() && !column.values.empty()) columns_.push_back(std::move(column));
    return status;
  }

  absl::Status FetchArray(const model::SignalInfo& info) {
    const std::string name(info.name);
    bool there = false;
    const size_t before = columns_.size();
    // Any layer at all? Then as many as there are: the length of a boundary array is the job's choice.
    if (const absl::Status status = FetchColumn(name, 0, {}, &there); !status.ok() || !there) return status;
    columns_.resize(before);
    const bool by_head = info.shape == Shape::kLayerHead || (info.shape == Shape::kLayerOrLayerHead && HasHeads(name));
    if (layers_ == 0 || (by_head && heads_ == 0) || layers_ * (by_head ? heads_ : 1) > kExportCellsMax) {
      console_.err << "gyrostatctl: " << name << " was left out: "
                   << (layers_ == 0 || heads_ == 0 ? "the job did not say how many layers and heads it has"
                                                   : "it has more than 1024 values a step") << ".\n";
      return absl::OkStatus();
    }
    const uint32_t layers = layers_ + (info.shape == Shape::kBoundary ? 1 : 0);
    for (uint32_t layer = 0; layer < layers; ++layer)
      for (uint32_t head = 0; head < (by_head ? heads_ : 1); ++head) {
        const auto which = by_head ? std::optional(head) : std::nullopt;
        if (const absl::Status status = FetchColumn(name, layer, which, &there); !status.ok()) return status;
      }
    return absl::OkStatus();
  }

  // Whether an array that may be one value a layer has heads.
  bool HasHeads(const std::string& name) {
    if (heads_ < 2) return false;
    bool there = false;
    const size_t before = columns_.size();
    const absl::Status status = FetchColumn(name, 0, 1, &there);
    columns_.resize(before);
    return status.ok() && there;
  }

  std::vector<int64_t> Steps() const {
    std::map<int64_t, bool> all;
    for (const Column& each : columns_)
      for (const auto& [step, value] : each.values) all[step] = true;
    std::vector<int64_t> steps;
    for (const auto& [step, there] : all) steps.push_back(step);
    return steps;
  }

  std::string JsonValue(const Column& column, int64_t step) const {
    const auto it = column.values.find(step);
    if (it == column.values.end()) return "null";
    return std::isfinite(it->second) ? column.Decimal(it->second) : "\"" + Number(it->second) + "\"";
  }

  // Columns [begin, end) are of one signal.
  void WriteSignal(size_t begin, size_t end, int64_t step) const {
    bool any = false;
    for (size_t i = begin; i < end; ++i) any = any || columns_[i].values.contains(step);
    if (!any) return;
    console_.out << ",\"" << columns_[begin].name << "\":";
    if (!columns_[begin].layer) {
      console_.out << JsonValue(columns_[begin], step);
      return;
    }
    console_.out << "[";
    for (size_t i = begin; i < end; ++i) {
      const Column& each = columns_[i];
      const bool first = i == begin || columns_[i - 1].layer != each.layer;
      if (i > begin) console_.out << ",";
      if (each.head && first) console_.out << "[";
      console_.out << JsonValue(each, step);
      if (each.head && (i + 1 == end || columns_[i + 1].layer != each.layer)) console_.out << "]";
    }
    console_.out << "]";
  }

  const Request& request_;
  Control* control_;
  const Console& console_;
  uint32_t layers_ = 0, heads_ = 0;
  std::vector<Column> columns_;  // Those of one signal stand together, layer-major.
};

}  // namespace

int Export(const Request& request, Control* control, const Console& console) {
  const auto run = control->GetRun(request.run);
  if (!run.ok()) return Complain(run.status(), request.address, console);
  Exporter exporter(request, control, console);
  if (const absl::Status status = exporter.Fetch(run->view()); !status.ok())
    return Complain(status, request.address, console);
  if (exporter.empty()) {
    console.err << "gyrostatctl: " << Escape(request.run) << " has no history yet.\n";
    return kRefused;
  }
  if (request.export_format == "csv") exporter.WriteCsv();
  else exporter.WriteJsonl(run->view());
  return kDone;
}

}  // namespace gyrostat::ctl
