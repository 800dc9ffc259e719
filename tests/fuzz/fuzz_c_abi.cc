// Any calls in any order with any arguments that a C program can pass, against a daemon that may say anything: nothing
// may crash, hang or leak, and each answer and each figure of gyro_stats is one the header allows.
//
// The daemon is the fake behind the transport seam. What the sender thread had seen of it when a call came depends on
// the scheduler, so an input does not always take the same path; kSettle waits for it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/qk_clip.h"
#include "support/fake_transport.h"
#include "support/paths.h"

namespace gyrostat {
namespace {

constexpr size_t kCallsMax = 256;               // Of one input: it is to take milliseconds.
constexpr size_t kFitsNever = size_t{1} << 21;  // More values than any array of any model.

// The input, taken from the front; zeros when it is at its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}
  bool AtEnd() const { return next_ == end_; }
  uint8_t Byte() { return AtEnd() ? uint8_t{0} : *next_++; }
  template <class T>
  T Raw() {
    uint8_t bytes[sizeof(T)];
    for (uint8_t& each : bytes) each = Byte();
    T value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  // A number of the kind that code has trouble with, or any.
  double Number() {
    static constexpr double kOdd[] = {0.0, -0.0, 1.0, NAN, INFINITY, -INFINITY, 1e-310, 1e300, -1.0, GYRO_ABSENT};
    const uint8_t which = Byte();
    return which < std::size(kOdd) ? kOdd[which] : which < 128 ? which : Raw<double>();
  }
  std::string Text() {
    std::string text(Byte(), '\0');
    for (char& each : text) each = static_cast<char>(Byte());
    return text;
  }

 private:
  const uint8_t* next_;
  const uint8_t* const end_;
};

// As the state's last eight bytes have it (client/src/state.cc): without it no mutation would pass the first check.
std::string Sealed(std::string bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char each : bytes) hash = (hash ^ static_cast<uint8_t>(each)) * 0x100000001b3;
  bytes.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  return bytes;
}

const char* SignalName(Input* in, std::string* storage) {
  static constexpr const char* kNames[] = {"loss",         "grad_norm", "learning_rate",   "hidden_ms",
                                           "attn_entropy", "nonfinite", "layer_grad_norm", "attn_logit_max",
                                           "mine",         nullptr};
  const uint8_t which = in->Byte();
  if (which < std::size(kNames)) return kNames[which];
  *storage = which < 128 ? "user." + std::to_string(which) : in->Text();
  return storage->c_str();
}

class Session {
 public:
  explicit Session(Input* in) : in_(in) { Open(); }
  ~Session() { Close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Call();

 private:
  void Open();
  void Close();
  void WholeStep();
  void Record();
  void End();
  void Poll();
  void Ack();
  void Registers();
  void Save();
  void Load();
  void Stats();
  void Null();
  void Daemon();
  void SendOrder();
  void Settle();

  // Values of exactly `count`, so that reading one more is seen; too few where the count alone must be refused.
  const float* Values(size_t count);
  size_t Count();
  gyro_client_stats Seen() const;
  // Counts are never more than what they are of.
  void CheckSums(const gyro_client_stats& stats) const;
  gyro_status Check(gyro_status status, bool recording = false) const;

  Input* in_;
  testing::FakeDaemon daemon_;
  gyro_client* client_ = nullptr;
  uint32_t layers_ = 0, heads_ = 0;
  bool active_ = false;
  uint64_t ends_ = 0, applied_ = 0;
  int64_t step_ = 0;
  gyro_order order_{};
  std::string state_;
  std::vector<float> values_;
};

void Session::Open() {
  static constexpr const char* kAttention[] = {nullptr, "mha", "gqa", "mqa", "mla", "none of these"};
  static constexpr const char* kAllow[] = {nullptr, "qk_clip", "qk_clip,lr_scale,grad_clip,skip_step,halt,collect", ",",
                                           "qk_clip,deepnorm_alpha,warmup_extension,lr_scale"};
  static constexpr const char* kAddress[] = {"fake:1", "fake:1", "fake:1", nullptr, "bad", ""};
  const auto pick = [this](auto& list) { return list[in_->Byte() % std::size(list)]; };
  gyro_options options;
  gyro_options_init(&options);
  std::string text;
  options.address = pick(kAddress);
  options.allow = pick(kAllow);
  options.model.attention = pick(kAttention);
  options.transport = testing::kFakeTransport;
  const uint8_t odd = in_->Byte();
  layers_ = in_->Byte() % 6;
  heads_ = in_->Byte() % 9;
  if (odd & 1) options.run = (text = in_->Text()).c_str();
  if (odd & 2) options.struct_size = in_->Byte();
  if (odd & 4) options.tau_min = in_->Number();
  if (odd & 8) options.rank = in_->Byte() % 3, options.world_size = in_->Byte() % 3;
  const int kind = odd & 16 ? in_->Raw<int>() : GYRO_LOGIT_EXACT;
  std::memcpy(&options.logit_kind, &kind, sizeof(kind));  // As C may leave any int there.
  if (odd & 32) options.transport = "/no/such/library.so";
  if (odd & 64) layers_ = in_->Raw<uint16_t>() % 1026, heads_ = in_->Byte();
  if (odd & 128) options.unacked_bytes = in_->Byte(), options.unacked_reports = in_->Byte();
  options.model.layers = layers_;
  options.model.heads = heads_;
  options.model.kv_heads = in_->Byte() % 5;
  options.model.master_fp32 = in_->Byte() % 3 - 1;
  options.model.qk_norm = "none";
  options.model.norm_placement = "post";
  options.model.schedule_peak = 1e-3;
  options.model.warmup_steps = 40;
  options.ring_reports = in_->Byte() % 16;
  const gyro_status status = gyro_open(odd == 255 ? nullptr : &options, &client_);
  GYROSTAT_CHECK(client_ != nullptr);
  active_ = status == GYRO_OK;
  GYROSTAT_CHECK(active_ || status == GYRO_INACTIVE || status == GYRO_INVALID || status == GYRO_UNAVAILABLE);
  ends_ = applied_ = 0;
  order_ = {};
  order_.struct_size = sizeof(order_);
}

void Session::Close() {
  GYROSTAT_CHECK(gyro_close(client_, in_->Byte() % 4) == (active_ ? GYRO_OK : GYRO_INACTIVE));
  client_ = nullptr;
}

gyro_status Session::Check(gyro_status status, bool recording) const {
  if (!active_) GYROSTAT_CHECK(status == GYRO_INACTIVE);
  if (active_)
    GYROSTAT_CHECK(status == GYRO_OK || status == GYRO_INVALID || status == GYRO_STATE ||
                   status == (recording ? GYRO_DROPPED : GYRO_NONE));
  return status;
}

size_t Session::Count() {
  const size_t fitting[] = {layers_, size_t{layers_} + 1, heads_, size_t{layers_} * heads_};
  const uint8_t which = in_->Byte();
  if (which < 128) return fitting[which % std::size(fitting)];
  return which < 192 ? in_->Byte() : in_->Raw<size_t>();
}

const float* Session::Values(size_t count) {
  values_ = std::vector<float>(count < kFitsNever ? count : 1);
  const auto first = static_cast<float>(in_->Number());
  for (float& each : values_) each = first;
  if (!values_.empty()) values_.back() = static_cast<float>(in_->Number());
  return values_.data();
}

void Session::WholeStep() {
  Check(gyro_step_begin(client_, step_++), true);
  Check(gyro_record_scalar(client_, "loss", in_->Number()), true);
  const size_t count = size_t{layers_} * heads_;
  Check(gyro_record_attn_logit_max(client_, Values(count), count, GYRO_LOGIT_EXACT), true);
  End();
}

void Session::Record() {
  std::string storage;
  const size_t count = Count();
  const uint8_t which = in_->Byte();
  const int kind = which < 200 ? which % 6 : in_->Raw<int>();  // Any int, as C passes it.
  const float* values = which == 255 ? nullptr : Values(count);
  switch (which % 4) {
    case 0:
      Check(gyro_record_scalar(client_, SignalName(in_, &storage), in_->Number()), true);
      break;
    case 1:
      Check(gyro_record_array(client_, SignalName(in_, &storage), values, count), true);
      break;
    case 2:
      Check(gyro_record_attn_logit_max(client_, values, count, static_cast<gyro_logit_kind>(kind)), true);
      break;
    default:
      Check(gyro_record_layer_attn_logit_max(client_, which < 128 ? in_->Byte() % 8 : in_->Raw<uint32_t>(), values,
                                             count, static_cast<gyro_logit_kind>(kind)),
            true);
  }
}

void Session::End() {
  const gyro_status status = Check(gyro_step_end(client_), true);
  if (status == GYRO_OK || status == GYRO_DROPPED) ++ends_;
}

void Session::Poll() {
  const uint8_t which = in_->Byte();
  if (which == 255) return void(Check(gyro_poll(client_, nullptr)));
  order_.struct_size = which == 254 ? in_->Byte() : sizeof(order_);
  if (Check(gyro_poll(client_, &order_)) != GYRO_OK) return;
  const bool clip = std::strcmp(order_.kind, "qk_clip") == 0;
  if (clip) GYROSTAT_CHECK(order_.q_count + order_.k_count > 0 && order_.tau > 0 && order_.register_count == 0);
  if (!clip) GYROSTAT_CHECK(order_.q_count + order_.k_count == 0 && order_.register_count > 0 && order_.ramp <= 200);
  for (uint32_t i = 0; i < order_.register_count; ++i) {
    const gyro_register& each = order_.registers[i];
    GYROSTAT_CHECK(each.id < GYRO_REGISTER_BETA + layers_ && std::isfinite(each.from) && std::isfinite(each.value));
    GYROSTAT_CHECK(each.from >= 0 && each.value >= 0);
  }
  GYROSTAT_CHECK(std::memchr(order_.kind, 0, sizeof(order_.kind)) != nullptr);
  GYROSTAT_CHECK(std::memchr(order_.intent_id, 0, sizeof(order_.intent_id)) != nullptr);
  const auto check = [this](const gyro_head_factor* factors, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      GYROSTAT_CHECK(factors[i].layer < layers_ && factors[i].head < heads_);
      GYROSTAT_CHECK(factors[i].factor > 0 && factors[i].factor <= 1);
    }
  };
  check(order_.q, order_.q_count);
  check(order_.k, order_.k_count);
}

void Session::Ack() {
  const uint8_t which = in_->Byte();
  uint8_t id[GYRO_ID_BYTES];
  std::memcpy(id, order_.id, sizeof(id));
  if (which & 64) id[which % sizeof(id)] ^= in_->Byte();
  const std::string reason = which & 32 ? in_->Text() + std::string(which & 16 ? 300 : 0, 'x') : "";
  const int named = which % 4 == 1 ? GYRO_REFUSED : which % 4 == 2 ? GYRO_FAILED : GYRO_APPLIED;
  const int outcome = which & 8 ? in_->Raw<int>() : named;
  const gyro_status status = Check(gyro_ack(client_, which & 128 ? nullptr : id, static_cast<gyro_outcome>(outcome),
                                            which & 32 ? reason.c_str() : nullptr));
  if (status == GYRO_OK && outcome == GYRO_APPLIED) ++applied_;
}

// What a loop asks about registers: the rate is never above its own, and never turns into something else.
void Session::Registers() {
  Check(gyro_progress(client_));
  const double base = in_->Number();
  double rate = 0;
  Check(gyro_learning_rate(client_, base, &rate));
  GYROSTAT_CHECK(std::isnan(base) ? std::isnan(rate) : base > 0 ? rate >= 0 && rate <= base : rate == base);
  const uint8_t which = in_->Byte();
  const uint32_t id = which < 32 ? which : which < 128 ? GYRO_REGISTER_ALPHA + which % 8 : in_->Raw<uint32_t>();
  float value = 0;
  if (Check(gyro_register_value(client_, id, which == 255 ? nullptr : &value)) == GYRO_OK)
    GYROSTAT_CHECK(std::isfinite(value) && value >= 0);
  Check(gyro_observe(client_, id, static_cast<float>(in_->Number())));
  const uint8_t hold = in_->Byte();
  if (hold < 32) Check(gyro_hold(client_, (in_->Text() + std::string(hold & 16 ? 300 : 0, 'x')).c_str()));
  if (hold >= 224) Check(gyro_hold(client_, nullptr));
}

void Session::Save() {
  const uint8_t* data = nullptr;
  size_t size = 0;
  GYROSTAT_CHECK(gyro_state_save(client_, &data, nullptr) == GYRO_INVALID);
  GYROSTAT_CHECK(gyro_state_save(client_, &data, &size) == GYRO_OK);
  state_.assign(reinterpret_cast<const char*>(data), size);
}

void Session::Load() {
  const uint8_t which = in_->Byte();
  std::string bytes = which & 1 ? state_ : in_->Text();
  if (which & 2 && bytes.size() > 8) {
    bytes.resize(bytes.size() - 8);
    for (int i = which >> 4; i > 0 && !bytes.empty(); --i) {
      char& changed = bytes[in_->Raw<uint16_t>() % bytes.size()];
      changed = static_cast<char>(in_->Byte());
    }
    if (which & 4) bytes.resize(in_->Byte() % (bytes.size() + 1));
    bytes = Sealed(std::move(bytes));
  }
  // In memory of exactly its size, without a string's closing zero.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  const bool null = which == 255;
  const gyro_status status = gyro_state_load(client_, null ? nullptr : exact.data(), exact.size());
  GYROSTAT_CHECK(status == GYRO_OK || status == GYRO_INVALID || status == GYRO_DROPPED);
  if (null) GYROSTAT_CHECK(status == GYRO_INVALID);
}

gyro_client_stats Session::Seen() const {
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  GYROSTAT_CHECK(gyro_stats(client_, &stats) == (active_ ? GYRO_OK : GYRO_INACTIVE));
  return stats;
}

void Session::CheckSums(const gyro_client_stats& stats) const {
  GYROSTAT_CHECK(stats.boundary == ends_ && stats.reports_total + stats.dropped_hot == ends_);
  GYROSTAT_CHECK(stats.reports_acked + stats.dropped_unacked <= stats.reports_total);
  GYROSTAT_CHECK(stats.orders_applied == applied_);
  GYROSTAT_CHECK(std::memchr(stats.last_error, 0, sizeof(stats.last_error)) != nullptr);
  if (stats.invalid_total > 0) GYROSTAT_CHECK(stats.last_error[0] != '\0');
}

void Session::Stats() {
  const uint8_t which = in_->Byte();
  if (which == 255) {
    GYROSTAT_CHECK(gyro_stats(client_, nullptr) == GYRO_INVALID);
    gyro_client_stats small{};
    small.struct_size = in_->Byte() % 64;
    GYROSTAT_CHECK(gyro_stats(client_, &small) == GYRO_INVALID);
  }
  CheckSums(Seen());
  GYROSTAT_CHECK(*gyro_strerror(static_cast<gyro_status>(which < 10 ? which : in_->Raw<int>())) != '\0');
}

// Without a client.
void Session::Null() {
  const float value = 1;
  const uint8_t* data = nullptr;
  size_t size = 0;
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  for (const gyro_status status :
       {gyro_step_begin(nullptr, 1), gyro_record_scalar(nullptr, "loss", 1), gyro_record_array(nullptr, "x", &value, 1),
        gyro_record_attn_logit_max(nullptr, &value, 1, GYRO_LOGIT_EXACT),
        gyro_record_layer_attn_logit_max(nullptr, 0, &value, 1, GYRO_LOGIT_EXACT), gyro_progress(nullptr),
        gyro_step_end(nullptr), gyro_poll(nullptr, &order_), gyro_ack(nullptr, order_.id, GYRO_APPLIED, nullptr),
        gyro_reset(nullptr), gyro_state_save(nullptr, &data, &size), gyro_state_load(nullptr, order_.id, 1),
        gyro_stats(nullptr, &stats),
        gyro_close(nullptr, 0), gyro_open(nullptr, nullptr), gyro_options_init(nullptr)})
    GYROSTAT_CHECK(status == GYRO_INVALID);
}

void Session::Daemon() {
  switch (in_->Byte() % 10) {
    case 0:
      return daemon_.GoDown();
    case 1:
      return daemon_.GoUp();
    case 2:
      return daemon_.Jam(in_->Byte() % 2 == 0);
    case 3:
      return daemon_.AutoWelcome(in_->Byte() % 2 == 0);
    case 4:
      return daemon_.AutoAcknowledge(in_->Byte() % 2 == 0);
    case 5:
    case 6:
      return daemon_.SendGarbage();
    case 7:
      return daemon_.Acknowledge(in_->Raw<uint64_t>());
    case 8:
      return daemon_.Welcome(in_->Raw<uint64_t>());
    default:
      return daemon_.Acknowledge(in_->Byte());
  }
}

// An order that is right but for what the input says.
void Session::SendOrder() {
  const uint8_t odd = in_->Byte();
  const gyro_client_stats stats = Seen();
  const std::vector<model::Hello> hellos = daemon_.hellos();
  model::Order order;
  order.id.bytes.fill(in_->Byte());
  if (!hellos.empty()) order.attempt = hellos.back().attempt, order.run = hellos.back().run;
  order.epoch = stats.epoch;
  order.tau = odd & 1 ? in_->Number() : 10;
  order.where = odd & 2 ? model::ClipWhere::kLocal : model::ClipWhere::kRemote;
  order.basis = odd & 4 ? in_->Raw<uint64_t>() : stats.boundary;
  order.expires_boundary = odd & 4 ? in_->Raw<uint64_t>() : stats.boundary + 16;
  order.intent_id = odd & 8 ? in_->Text() : "fuzz/1";
  if (odd & 16) order.variant = model::ClipVariant{in_->Byte()};
  if (odd & 32) order.split = in_->Number();
  if (odd & 64) order.kind = model::InterventionKind{in_->Byte()};
  if (odd & 64 && odd & 8) order.epoch = in_->Byte();
  for (int i = odd & 64 ? in_->Byte() % 8 : 0; i > 0; --i) {
    const uint32_t id = odd & 128 ? in_->Raw<uint16_t>() % 2200 : in_->Byte() % 72;
    order.sets.push_back({id, static_cast<float>(in_->Number()), uint32_t{in_->Byte()} % 3});
    order.ramp = in_->Byte();
  }
  const int entries = odd & 2 ? 0 : 1 + in_->Byte() % 4;
  for (int i = 0; i < entries; ++i) {
    model::ClipEntry entry;
    entry.layer = odd & 128 ? in_->Raw<uint32_t>() : in_->Byte() % std::max(layers_, 1u);
    entry.head = odd & 128 ? in_->Raw<uint32_t>() : in_->Byte() % std::max(heads_, 1u);
    entry.reported_max = values_.empty() ? 20 : values_.front();
    const auto target = remedy::ClipTarget(entry.reported_max, order.tau, 0);
    entry.target_ticks = odd & 128 ? in_->Raw<int64_t>() : target.value_or(1);
    order.entries.push_back(entry);
  }
  daemon_.Send(order);
}

// Until the sender has nothing left to do, should the daemon let it; otherwise not long.
void Session::Settle() {
  if (!active_) return;
  int turns = 0;
  daemon_.Wait([&](const testing::FakeDaemon&) {
    const gyro_client_stats stats = Seen();
    return stats.reports_acked + stats.dropped_unacked == stats.reports_total || ++turns > 5;
  });
}

void Session::Call() {
  switch (in_->Byte() % 21) {
    case 0:
      return void(Check(gyro_step_begin(client_, in_->Byte() == 255 ? in_->Raw<int64_t>() : step_++), true));
    case 1:
    case 2:
    case 3:
      return Record();
    case 4:
      return End();
    case 5:
    case 6:
      return WholeStep();
    case 7:
    case 8:
      return Poll();
    case 9:
    case 10:
      return Ack();
    case 11: {
      const gyro_status status = gyro_reset(client_);
      return GYROSTAT_CHECK(active_ ? status == GYRO_OK || status == GYRO_DROPPED : status == GYRO_INACTIVE);
    }
    case 12:
      return Save();
    case 13:
      return Load();
    case 14:
      return Stats();
    case 15:
      return Null();
    case 16:
      return Daemon();
    case 17:
      return SendOrder();
    case 18:
      return Settle();
    case 19:
      return Registers();
    default:
      Close();
      Open();
  }
}

}  // namespace
}  // namespace gyrostat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool kAlone = unsetenv("GYROSTAT_ADDRESS") == 0 && unsetenv("GYROSTAT_DISABLE") == 0;
  GYROSTAT_CHECK(kAlone);
  gyrostat::Input input(data, size);
  gyrostat::Session session(&input);
  for (size_t i = 0; i < gyrostat::kCallsMax && !input.AtEnd(); ++i) session.Call();
  return 0;
}
