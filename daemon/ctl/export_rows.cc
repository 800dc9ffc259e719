#include "ctl/export_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

#include "ctl/json.h"
#include "ctl/text.h"

namespace gyrostat::ctl {
namespace {

using model::Shape;
using model::Signal;

// Of a rank digest's slot (model/signal.h).
constexpr std::array<const char*, model::kRankDigestFields> kDigestFields = {"rank", "loss", "grad_norm",
                                                                            "step_time_ms", "weight_checksum"};

template <class Real>
std::string_view Shortest(Real value, std::array<char, 64>* raw) {
  return {raw->data(), static_cast<size_t>(std::to_chars(raw->data(), raw->data() + raw->size(), value).ptr -
                                           raw->data())};
}

void AppendReal(double value, std::string* out) {
  std::array<char, 64> raw;
  out->append(Shortest(value, &raw));
}

// Readers take doubles and round those to floats. Rounding twice is nearly always rounding once; where it is not, more
// digits are needed.
void AppendReal(float value, std::string* out) {
  std::array<char, 64> raw;
  const std::string_view text = Shortest(value, &raw);
  double read = 0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  if (static_cast<float>(read) == value) out->append(text);
  else AppendReal(double{value}, out);
}

template <class Real>
void AppendJson(Real value, std::string* out) {
  if (model::IsAbsent(static_cast<double>(value))) out->append("null");
  else if (std::isfinite(value)) AppendReal(value, out);
  else out->append("\"" + Number(static_cast<double>(value)) + "\"");
}

template <class Real>
void AppendCell(Real value, std::string* out) {
  out->push_back(',');
  if (model::IsAbsent(static_cast<double>(value))) return;
  if (std::isfinite(value)) AppendReal(value, out);
  else out->append(Number(static_cast<double>(value)));
}

std::vector<float> FloatsOf(const v1::SignalValues& array) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<float> values(array.values().size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), array.values().data(), values.size() * sizeof(float));
  return values;
}

const model::SignalInfo* InfoOf(uint32_t number) {
  return number < static_cast<uint32_t>(Signal::kArrayEnd) ? model::FindSignal(static_cast<Signal>(number)) : nullptr;
}

// Values in each row of an array of `size`; 0: it is flat.
size_t ColumnsOf(Shape shape, size_t size, uint32_t layers, uint32_t heads) {
  if (shape == Shape::kRankDigest) return model::kRankDigestFields;
  if (shape != Shape::kLayerHead && shape != Shape::kLayerOrLayerHead) return 0;
  if (shape == Shape::kLayerOrLayerHead && (layers == 0 || size == layers)) return 0;
  if (layers > 0 && size % layers == 0) return size / layers;
  return layers == 0 && heads > 0 && size % heads == 0 ? heads : 0;
}

void AppendKey(std::string_view name, std::string* out) {
  if (out->back() != '{') out->push_back(',');
  out->append("\"").append(name).append("\":");
}

template <class Whole>
void AppendWhole(std::string_view name, Whole value, std::string* out) {
  AppendKey(name, out);
  out->append(std::to_string(value));
}

}  // namespace

void JsonlRows::Append(const v1::ExportChunk& chunk, std::string* out) {
  if (chunk.has_attempt()) Header(chunk, out);
  for (const v1::Report& each : chunk.reports()) Row(each, out);
}

// A job may learn only from its first attention how maxima are made: then the first report that knows is believed.
void JsonlRows::Header(const v1::ExportChunk& chunk, std::string* out) {
  v1::ExportAttempt attempt = chunk.attempt();
  if (attempt.attn_logit().kind() == v1::AttnLogitInfo::KIND_UNSPECIFIED) {
    const auto knows = std::ranges::find_if(chunk.reports(), [](const v1::Report& each) {
      return each.attn_logit_kind() != v1::AttnLogitInfo::KIND_UNSPECIFIED;
    });
    if (knows != chunk.reports().end()) attempt.mutable_attn_logit()->set_kind(knows->attn_logit_kind());
  }
  kind_ = attempt.attn_logit().kind();
  layers_ = attempt.model().layers();
  heads_ = attempt.model().heads();
  sequence_ = boundary_ = epoch_ = ledger_version_ = 0;
  first_ = true;
  out->append(JsonHeader(run_, attempt)).push_back('\n');
}

void JsonlRows::Row(const v1::Report& report, std::string* out) {
  out->push_back('{');
  AppendWhole("step", report.step(), out);
  for (int i = 0; i < std::min(report.scalar_signals_size(), report.scalars_size()); ++i) {
    const model::SignalInfo* info = InfoOf(report.scalar_signals(i));
    if (info == nullptr) continue;
    AppendKey(info->name, out);
    AppendJson(report.scalars(i), out);
  }
  for (const v1::SignalValues& each : report.arrays()) Array(each, out);
  User(report, out);
  Bookkeeping(report, out);
  out->append("}\n");
}

void JsonlRows::Array(const v1::SignalValues& array, std::string* out) const {
  const model::SignalInfo* info = InfoOf(array.signal());
  if (info == nullptr) return;
  const std::vector<float> values = FloatsOf(array);
  const size_t columns = ColumnsOf(info->shape, values.size(), layers_, heads_);
  AppendKey(info->name, out);
  out->push_back('[');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out->push_back(',');
    if (columns > 0 && i % columns == 0) out->push_back('[');
    AppendJson(values[i], out);
    if (columns > 0 && (i + 1) % columns == 0) out->push_back(']');
  }
  out->push_back(']');
}

// A name that a reader would take for something of its own ("lr", "epoch" is none) stands apart.
void JsonlRows::User(const v1::Report& report, std::string* out) {
  const int count = std::min(report.user_names_size(), report.user_values_size());
  const auto apart = [this](const std::string& name) {
    return name == "user" || name == "report" || name == "gyrostat" ||
           keys_.Find(name).kind != logs::Meaning::Kind::kNothing;
  };
  bool any_apart = false;
  for (int i = 0; i < count; ++i) {
    any_apart = any_apart || apart(report.user_names(i));
    if (apart(report.user_names(i))) continue;
    AppendKey(report.user_names(i), out);
    AppendJson(report.user_values(i), out);
  }
  if (!any_apart) return;
  AppendKey("user", out);
  out->push_back('{');
  for (int i = 0; i < count; ++i) {
    if (!apart(report.user_names(i))) continue;
    AppendKey(report.user_names(i), out);
    AppendJson(report.user_values(i), out);
  }
  out->push_back('}');
}

void JsonlRows::Bookkeeping(const v1::Report& report, std::string* out) {
  std::string fields = "{";
  // A row that repeats a step says that it is a report of its own, and no line that somebody doubled.
  if (report.sequence() != sequence_ + 1 || (!first_ && report.step() <= step_))
    AppendWhole("sequence", report.sequence(), &fields);
  if (report.epoch() != epoch_) AppendWhole("epoch", report.epoch(), &fields);
  if (report.boundary() != (first_ ? report.sequence() - 1 : boundary_ + 1))
    AppendWhole("boundary", report.boundary(), &fields);
  if (report.ledger_version() != ledger_version_) AppendWhole("ledger_version", report.ledger_version(), &fields);
  if (report.attn_logit_kind() != kind_) {
    AppendKey("attn_logit_kind", &fields);
    fields += std::string("\"") + Token(report.attn_logit_kind()) + "\"";
  }
  sequence_ = report.sequence();
  step_ = report.step();
  epoch_ = report.epoch();
  boundary_ = report.boundary();
  ledger_version_ = report.ledger_version();
  first_ = false;
  if (fields.size() == 1) return;
  AppendKey("report", out);
  out->append(fields).push_back('}');
}

void CsvRows::Attempt(const v1::ExportChunk& chunk) {
  if (!chunk.has_attempt()) return;
  ++attempt_;
  layers_ = chunk.attempt().model().layers();
  heads_ = chunk.attempt().model().heads();
}

CsvRows::Layout CsvRows::LayoutOf(Signal signal, size_t size) const {
  const size_t columns = ColumnsOf(model::FindSignal(signal)->shape, size, layers_, heads_);
  if (columns == 0) return {size, 0, 0};
  return {0, size / columns, columns};
}

void CsvRows::Look(const v1::ExportChunk& chunk) {
  Attempt(chunk);
  for (const v1::Report& report : chunk.reports()) {
    for (const uint32_t number : report.scalar_signals())
      if (const model::SignalInfo* info = InfoOf(number)) scalars_[info->signal] = true;
    for (const v1::SignalValues& array : report.arrays()) {
      const model::SignalInfo* info = InfoOf(array.signal());
      if (info == nullptr) continue;
      const Layout now = LayoutOf(info->signal, array.values().size() / sizeof(float));
      Layout& most = arrays_[info->signal];
      most = {std::max(most.flat, now.flat), std::max(most.rows, now.rows), std::max(most.columns, now.columns)};
    }
    for (const std::string& name : report.user_names())
      if (std::ranges::find(users_, name) == users_.end()) users_.push_back(name);
  }
}

void CsvRows::AppendHeader(std::string* out) {
  attempt_ = 0;
  out->append("step,attempt");
  for (const auto& [signal, there] : scalars_) out->append(",").append(model::SignalName(signal));
  for (const auto& [signal, most] : arrays_) {
    const std::string name(model::SignalName(signal));
    for (size_t i = 0; i < most.flat; ++i) *out += "," + name + "/layer" + std::to_string(i);
    const bool digest = signal == Signal::kRankDigest;
    for (size_t row = 0; row < most.rows; ++row)
      for (size_t column = 0; column < most.columns; ++column)
        *out += "," + name + (digest ? "/slot" : "/layer") + std::to_string(row) + "/" +
                (digest ? kDigestFields[column] : "head" + std::to_string(column));
  }
  for (const std::string& name : users_) out->append(",").append(name);
  out->push_back('\n');
}

void CsvRows::Append(const v1::ExportChunk& chunk, std::string* out) {
  Attempt(chunk);
  for (const v1::Report& each : chunk.reports()) Row(each, out);
}

void CsvRows::Row(const v1::Report& report, std::string* out) {
  *out += std::to_string(report.step()) + "," + std::to_string(attempt_);
  for (const auto& [signal, there] : scalars_) {
    double value = static_cast<double>(model::kAbsent);
    for (int i = 0; i < std::min(report.scalar_signals_size(), report.scalars_size()); ++i)
      if (report.scalar_signals(i) == static_cast<uint32_t>(signal)) value = report.scalars(i);
    AppendCell(value, out);
  }
  for (const auto& [signal, most] : arrays_) {
    const auto array = std::ranges::find(report.arrays(), static_cast<uint32_t>(signal), &v1::SignalValues::signal);
    const std::vector<float> values =
        array == report.arrays().end() ? std::vector<float>() : FloatsOf(*array);
    const Layout now = LayoutOf(signal, values.size());
    for (size_t i = 0; i < most.flat; ++i) AppendCell(i < now.flat ? values[i] : model::kAbsent, out);
    for (size_t row = 0; row < most.rows; ++row)
      for (size_t column = 0; column < most.columns; ++column)
        AppendCell(row < now.rows && column < now.columns ? values[row * now.columns + column] : model::kAbsent, out);
  }
  user_values_.clear();
  for (int i = 0; i < std::min(report.user_names_size(), report.user_values_size()); ++i)
    user_values_[report.user_names(i)] = report.user_values(i);
  for (const std::string& name : users_) {
    const auto it = user_values_.find(name);
    AppendCell(it == user_values_.end() ? static_cast<double>(model::kAbsent) : it->second, out);
  }
  out->push_back('\n');
}

}  // namespace gyrostat::ctl
