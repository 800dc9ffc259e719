#include "client/src/settings.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "model/intervention.h"

namespace gyrostat::client {
namespace {

// The structs as the first release had them: what a caller must at least have. Fields are only ever added at the end.
constexpr uint32_t kModelSizeV1 = offsetof(gyro_model, total_steps) + sizeof(uint64_t);
constexpr uint32_t kOptionsSizeV1 = offsetof(gyro_options, model) + kModelSizeV1;
constexpr uint32_t kCollectiveSizeV1 = offsetof(gyro_collective, round_done);
constexpr uint64_t kRowsMax = uint64_t{1} << 32;  // Of one projection.
constexpr size_t kTextMax = 1024;  // Of any string in the options.

// What the daemon takes in a hello (daemon/rpc/convert.h): better refused here, where somebody reads it.
constexpr uint64_t kLayerHeadsMax = 1 << 18;
constexpr uint32_t kSizeMax = 1u << 24, kVocabularyMax = 1u << 30;
constexpr double kNumberMax = 1e6, kTauMax = 1e9;
constexpr uint64_t kStepsMax = uint64_t{1} << 53;
constexpr uint32_t kWorldSizeMax = 1u << 24;

// Of a string of any length: enough to see that it is too long for a name.
std::string Start(const char* text) { return text == nullptr ? "" : std::string(text, strnlen(text, kTextMax)); }

// A stranger's words fit for one line of a log: what is no printable character is a '?', and not all of it is shown.
std::string Quoted(const std::string& text) {
  constexpr size_t kShownMax = 64;
  size_t end = std::min(text.size(), kShownMax);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // UTF-8.
  std::string shown = text.substr(0, end);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return '"' + shown + (end < text.size() ? "...\"" : "\"");
}

// Collects the first complaint.
class Reader {
 public:
  explicit Reader(std::string* error) : error_(error) { error_->clear(); }
  bool ok() const { return error_->empty(); }

  void Complain(std::string_view field, const std::string& seen, std::string_view wanted) {
    if (ok()) *error_ = std::string(field) + " is " + seen + ", wanted " + std::string(wanted);
  }
  std::string Text(std::string_view field, const char* text) {
    if (text == nullptr) return {};
    const size_t size = strnlen(text, kTextMax + 1);
    if (size > kTextMax) {
      Complain(field, "longer than 1024 bytes", "at most 1024");
      return {};
    }
    return std::string(text, size);
  }
  void Name(std::string_view field, const std::string& name) {
    if (!model::IsValidName(name)) Complain(field, Quoted(name), "1 to 128 of the characters A-Z a-z 0-9 . _ : -");
  }
  template <class T>
  void Range(std::string_view field, T value, T low, T high) {
    if (value < low || value > high)
      Complain(field, std::to_string(value), std::to_string(low) + " to " + std::to_string(high));
  }
  // Empty stays unknown; a stranger is a complaint. `of` answers the enumerator 0 for strangers.
  template <class Enum>
  Enum Token(std::string_view field, const char* text, Enum (*of)(const std::string&), std::string_view wanted) {
    const std::string token = Text(field, text);
    if (token.empty()) return Enum{};
    const Enum value = of(token);
    if (value == Enum{}) Complain(field, Quoted(token), wanted);
    return value;
  }
  std::optional<double> Positive(std::string_view field, double value, double high) {
    if (value == 0) return std::nullopt;
    if (!(value > 0 && value <= high))
      Complain(field, std::to_string(value), "above 0 and at most " + std::to_string(high) + ", or 0: not known");
    return value;
  }

 private:
  std::string* error_;
};

std::optional<uint64_t> Known(uint64_t value) { return value == 0 ? std::nullopt : std::optional<uint64_t>(value); }

void ReadModel(const gyro_model& in, Reader* reader, model::ModelSpec* out) {
  out->layers = in.layers;
  out->hidden_size = in.hidden_size;
  out->heads = in.heads;
  out->kv_heads = in.kv_heads;
  out->head_dim = in.head_dim;
  out->vocab_size = in.vocab_size;
  reader->Range("model.layers", in.layers, 0u, model::kLayersMax);
  reader->Range("model.heads", in.heads, 0u, model::kHeadsMax);
  if (uint64_t{in.layers} * in.heads > kLayerHeadsMax)
    reader->Complain("model.layers x model.heads", std::to_string(uint64_t{in.layers} * in.heads),
                     "at most " + std::to_string(kLayerHeadsMax));
  reader->Range("model.hidden_size", in.hidden_size, 0u, kSizeMax);
  reader->Range("model.head_dim", in.head_dim, 0u, kSizeMax);
  reader->Range("model.vocab_size", in.vocab_size, 0u, kVocabularyMax);
  reader->Range<uint64_t>("model.warmup_steps", in.warmup_steps, 0, kStepsMax);
  reader->Range<uint64_t>("model.total_steps", in.total_steps, 0, kStepsMax);
  if (in.kv_heads != 0 && (in.heads == 0 || in.heads % in.kv_heads != 0))
    reader->Complain("model.kv_heads", std::to_string(in.kv_heads),
                     "a divisor of model.heads = " + std::to_string(in.heads));
  reader->Range("model.master_fp32", in.master_fp32, -1, 1);
  if (in.master_fp32 >= 0) out->master_fp32 = in.master_fp32 == 1;
  out->attention = reader->Token("model.attention", in.attention, model::AttentionOf, "mha, gqa, mqa or mla");
  out->norm_kind = reader->Token("model.norm_kind", in.norm_kind, model::NormKindOf, "layernorm or rmsnorm");
  out->norm_gain = reader->Token("model.norm_gain", in.norm_gain, model::NormGainOf, "plain or unit_offset");
  out->norm_placement = reader->Token("model.norm_placement", in.norm_placement, model::NormPlacementOf,
                                      "post, pre, peri, reordered, deepnorm, mix, hybrid, layernorm_scaling, "
                                      "residual_dual or keel");
  out->qk_norm = reader->Token("model.qk_norm", in.qk_norm, model::QkNormOf, "none, per_head or flattened");
  out->schedule_kind = reader->Token("model.schedule_kind", in.schedule_kind, model::ScheduleKindOf,
                                     "const, linear, cosine, wsd or noam");
  out->activation = reader->Text("model.activation", in.activation);
  out->compute_dtype = reader->Text("model.compute_dtype", in.compute_dtype);
  out->optimizer = reader->Text("model.optimizer", in.optimizer);
  out->preset = reader->Text("model.preset", in.preset);
  out->norm_eps = reader->Positive("model.norm_eps", in.norm_eps, 1);
  out->deepnorm_alpha = reader->Positive("model.deepnorm_alpha", in.deepnorm_alpha, kNumberMax);
  out->deepnorm_beta = reader->Positive("model.deepnorm_beta", in.deepnorm_beta, kNumberMax);
  out->logit_softcap = reader->Positive("model.logit_softcap", in.logit_softcap, kNumberMax);
  out->schedule_peak = reader->Positive("model.schedule_peak", in.schedule_peak, kNumberMax);
  out->warmup_steps = Known(in.warmup_steps);
  out->total_steps = Known(in.total_steps);
}

void ReadAllow(const std::string& text, Reader* reader, Settings* out) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string kind = text.substr(begin, end - begin);
    begin = end + 1;
    while (!kind.empty() && kind.front() == ' ') kind.erase(kind.begin());
    while (!kind.empty() && kind.back() == ' ') kind.pop_back();
    if (kind.empty()) continue;
    if (!model::InterventionKindOf(kind))
      return reader->Complain("allow", Quoted(kind), "kinds of intervention, comma-separated, e.g. qk_clip");
    out->allow_qk_clip |= kind == model::Token(model::InterventionKind::kQkClip);
    out->allow.push_back(std::move(kind));
  }
}

std::string TextOrEnvironment(std::string text, const char* variable, const char* otherwise) {
  if (!text.empty()) return text;
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

void ReadRing(const gyro_options& in, Reader* reader, Settings* out) {
  if (in.ring_reports != 0) out->ring_reports = in.ring_reports;
  if (in.unacked_reports != 0) out->unacked_reports = in.unacked_reports;
  if (in.unacked_bytes != 0) out->unacked_bytes = in.unacked_bytes;
  reader->Range("ring_reports", out->ring_reports, 2u, 4096u);
  reader->Range("unacked_reports", out->unacked_reports, 2u, 65536u);
}

void ReadConventions(const gyro_options& in, Reader* reader, Settings* out) {
  int kind = 0;  // Read as an int: what a caller left in the field need not be an enumerator.
  static_assert(sizeof(kind) == sizeof(in.logit_kind));
  std::memcpy(&kind, &in.logit_kind, sizeof(kind));
  reader->Range<int>("logit_kind", kind, GYRO_LOGIT_UNKNOWN, GYRO_LOGIT_NORM_PRODUCT);
  out->attn_logit.kind = static_cast<model::LogitKind>(kind);
  out->attn_logit.scaled = in.logit_scaled != 0;
  out->attn_logit.masked = in.logit_masked != 0;
  out->attn_logit.with_bias = in.logit_with_bias != 0;
  out->attn_logit.pre_cap = in.logit_pre_cap != 0;
  out->grad_norm_clipped = in.grad_norm_clipped != 0;
}

void ReadPlace(uint32_t rank, uint32_t world_size, Reader* reader, Settings* out) {
  out->rank = rank;
  out->world_size = world_size;
  reader->Range("world_size", world_size, 1u, kWorldSizeMax);
  if (rank >= world_size)
    reader->Complain("rank", std::to_string(rank), "less than world_size = " + std::to_string(world_size));
}

void ReadCollective(const gyro_collective* given, Reader* reader, Settings* out) {
  if (given == nullptr) return;
  gyro_collective known{};
  const gyro_collective* const in = &known;
  if (given->struct_size >= kCollectiveSizeV1)
    std::memcpy(&known, given, std::min<size_t>(given->struct_size, sizeof(known)));
  if (in->max_begin == nullptr || in->max_wait == nullptr)
    return reader->Complain("collective", "one that is incomplete", "struct_size, max_begin and max_wait set");
  if ((in->sum_begin == nullptr) != (in->sum_wait == nullptr))
    return reader->Complain("collective", "one half of a SUM", "sum_begin and sum_wait both set, or both NULL");
  reader->Range("collective.replica", in->replica, 0u, out->world_size - 1);
  if (in->shard_count > 0 && in->shards == nullptr)
    return reader->Complain("collective.shards", "NULL", std::to_string(in->shard_count) + " shards");
  for (size_t i = 0; i < in->shard_count; ++i) {
    const gyro_shard& shard = in->shards[i];
    if (shard.layer < out->model.layers && shard.row_begin <= shard.row_end && shard.row_end <= kRowsMax) continue;
    return reader->Complain("collective.shards", "one of layer " + std::to_string(shard.layer),
                            "a layer of the model and rows in order");
  }
  out->collective = *in;
  out->collective.shards = nullptr;
  out->shards.assign(in->shards, in->shards + in->shard_count);
}

}  // namespace

gyro_status ReadSettings(const gyro_options* options, Settings* settings, std::string* error) {
  Reader reader(error);
  *settings = Settings{};
  gyro_options in{};
  gyro_options_init(&in);
  if (options != nullptr) {
    if (options->struct_size < kOptionsSizeV1 || options->model.struct_size < kModelSizeV1) {
      reader.Complain(
          "struct_size",
          std::to_string(options->struct_size) + " (model " + std::to_string(options->model.struct_size) + ")",
          "sizeof(gyro_options) and sizeof(gyro_model): call gyro_options_init first");
      return GYRO_INVALID;
    }
    std::memcpy(&in, options, std::min<size_t>(options->struct_size, sizeof(in)));
  }
  ReadModel(in.model, &reader, &settings->model);
  ReadRing(in, &reader, settings);
  ReadConventions(in, &reader, settings);
  ReadAllow(reader.Text("allow", in.allow), &reader, settings);
  if (!(in.tau_min >= 0 && in.tau_min <= kTauMax))
    reader.Complain("tau_min", std::to_string(in.tau_min), "0 to " + std::to_string(kTauMax));
  settings->tau_min = in.tau_min;
  ReadPlace(in.rank, in.world_size == 0 ? 1 : in.world_size, &reader, settings);
  ReadCollective(in.collective, &reader, settings);
  settings->framework = reader.Text("framework", in.framework);
  settings->transport_path = reader.Text("transport", in.transport);
  settings->address = TextOrEnvironment(reader.Text("address", in.address), "GYROSTAT_ADDRESS", "");
  settings->run = TextOrEnvironment(Start(in.run), "GYROSTAT_RUN", "run");
  reader.Name("run", settings->run);
  if (!reader.ok()) return GYRO_INVALID;
  const char* disable = std::getenv("GYROSTAT_DISABLE");
  const bool disabled = disable != nullptr && std::strcmp(disable, "1") == 0;
  settings->active = !disabled && !settings->address.empty() && settings->rank == 0;
  // A job that may change nothing never waits for anybody.
  if (!disabled && settings->collective.max_begin != nullptr && settings->world_size > 1 && !settings->allow.empty())
    settings->agreement_lag = 1;
  return GYRO_OK;
}

gyro_status ReadMembership(const gyro_collective* collective, uint32_t rank, uint32_t world_size, Settings* settings,
                           std::string* error) {
  Reader reader(error);
  Settings next = *settings;
  ReadPlace(rank, world_size, &reader, &next);
  if (collective == nullptr) reader.Complain("collective", "NULL", "the one of all ranks that go on");
  ReadCollective(collective, &reader, &next);
  if (!reader.ok()) return GYRO_INVALID;
  *settings = std::move(next);
  return GYRO_OK;
}

}  // namespace gyrostat::client
