// A thin C++17 wrapper around the C ABI: a handle that closes itself, and a poll that always acks. Header only; nothing
// here throws of its own. The contract is in gyrostat.h.
//
//   gyrostat::Client client(options);
//   for (…) {
//     train();
//     client.Step(step, [&](gyrostat::Report& r) { r.Scalar("loss", loss); r.AttnLogitMax(maxima); });
//     client.ApplyOrders([&](const gyro_order& order) { Scale(order); return GYRO_APPLIED; });
//   }
#ifndef GYROSTAT_GYROSTAT_HPP_
#define GYROSTAT_GYROSTAT_HPP_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "gyrostat/gyrostat.h"

namespace gyrostat {

// Options with defaults: set the fields you know. The strings they point to need to live until Client is constructed.
struct Options : gyro_options {
  Options() : gyro_options() { gyro_options_init(this); }
};

// The report of the step that Client::Step has begun. Each call answers as the C function of its name.
class Report {
 public:
  explicit Report(gyro_client* client) : client_(client) {}

  gyro_status Scalar(const char* signal, double value) { return gyro_record_scalar(client_, signal, value); }
  gyro_status Array(const char* signal, const float* values, std::size_t count) {
    return gyro_record_array(client_, signal, values, count);
  }
  gyro_status Array(const char* signal, const std::vector<float>& values) {
    return Array(signal, values.data(), values.size());
  }
  gyro_status AttnLogitMax(const float* values, std::size_t count, gyro_logit_kind kind = GYRO_LOGIT_UNKNOWN) {
    return gyro_record_attn_logit_max(client_, values, count, kind);
  }
  gyro_status AttnLogitMax(const std::vector<float>& values, gyro_logit_kind kind = GYRO_LOGIT_UNKNOWN) {
    return AttnLogitMax(values.data(), values.size(), kind);
  }
  gyro_status LayerAttnLogitMax(std::uint32_t layer, const float* values, std::size_t count,
                                gyro_logit_kind kind = GYRO_LOGIT_UNKNOWN) {
    return gyro_record_layer_attn_logit_max(client_, layer, values, count, kind);
  }

 private:
  gyro_client* client_;
};

// Move-only. One thread, the training thread, calls everything but Stats.
class Client {
 public:
  // Opens. Never fails: an inert client is a client too; status() says which it became.
  explicit Client(const gyro_options& options) { status_ = gyro_open(&options, &client_); }
  Client(Client&& other) noexcept { *this = std::move(other); }
  Client& operator=(Client&& other) noexcept {
    if (this == &other) return *this;
    Close();
    client_ = std::exchange(other.client_, nullptr);
    status_ = std::exchange(other.status_, GYRO_INACTIVE);
    return *this;
  }
  ~Client() { Close(); }

  gyro_status status() const { return status_; }
  bool active() const { return status_ == GYRO_OK; }
  gyro_client* get() const { return client_; }

  // Sends what waits, for at most `flush_ms`, and closes. A second call does nothing.
  gyro_status Close(std::uint32_t flush_ms = 250) {
    gyro_client* const client = std::exchange(client_, nullptr);
    return client == nullptr ? GYRO_INACTIVE : gyro_close(client, flush_ms);
  }

  // One boundary: begins the report of `step`, lets `record` fill it, ends it. Right after the optimizer step.
  template <class Record>
  gyro_status Step(std::int64_t step, Record&& record) {
    const gyro_status begun = gyro_step_begin(client_, step);
    if (begun == GYRO_OK) {
      Report report(client_);
      std::forward<Record>(record)(report);
    }
    return begun == GYRO_OK || begun == GYRO_DROPPED ? gyro_step_end(client_) : begun;
  }

  // Anywhere within a step, as often as you like: of ranks that agree, the leader's report of the boundary before
  // leaves as soon as it can.
  gyro_status Progress() { return gyro_progress(client_); }

  // Hands each order of this boundary to `apply`, which answers a gyro_outcome, and acks it. An exception out of
  // `apply` is acked as GYRO_FAILED and goes on to the caller. Returns how many were applied.
  template <class Apply>
  int ApplyOrders(Apply&& apply) {
    int applied = 0;
    gyro_order order;
    order.struct_size = sizeof(order);
    while (gyro_poll(client_, &order) == GYRO_OK) {
      Ack ack{client_, order.id};
      ack.outcome = apply(static_cast<const gyro_order&>(order));
      applied += ack.outcome == GYRO_APPLIED;
    }
    return applied;
  }

  // The rate for the optimizer step to come, given what the schedule says; `base` where there is no order or client.
  double LearningRate(double base) {
    double rate = base;
    gyro_learning_rate(client_, base, &rate);
    return rate;
  }
  // What a register says from this boundary on, or `otherwise` where there is no such register or client.
  float RegisterValue(std::uint32_t id, float otherwise) {
    float value = otherwise;
    return gyro_register_value(client_, id, &value) == GYRO_OK ? value : otherwise;
  }
  // What the model shows a register to be.
  gyro_status Observe(std::uint32_t id, float value) { return gyro_observe(client_, id, value); }
  // The trainer's kill switch, with a reason; and its end.
  gyro_status Hold(const char* reason) { return gyro_hold(client_, reason); }
  gyro_status Release() { return gyro_hold(client_, nullptr); }

  // The weights got another history: a new epoch.
  gyro_status Reset() { return gyro_reset(client_); }

  // Ranks came or went: on every rank that goes on, between boundaries, with what holds from now on. Blocks until all
  // have joined.
  gyro_status Rejoin(const gyro_collective& collective, std::uint32_t rank, std::uint32_t world_size) {
    return gyro_rejoin(client_, &collective, rank, world_size);
  }

  // State for the checkpoint, and back. Empty where there is no client.
  std::vector<std::uint8_t> SaveState() {
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;
    if (gyro_state_save(client_, &data, &size) != GYRO_OK) return {};
    return std::vector<std::uint8_t>(data, data + size);
  }
  gyro_status LoadState(const std::vector<std::uint8_t>& state) {
    return gyro_state_load(client_, state.data(), state.size());
  }

  // Any thread.
  gyro_client_stats Stats() const {
    gyro_client_stats stats = {};
    stats.struct_size = sizeof(stats);
    gyro_stats(client_, &stats);
    return stats;
  }

 private:
  // Acks in any case: an order that is left open counts as failed anyway, only later.
  struct Ack {
    gyro_client* client;
    std::uint8_t id[GYRO_ID_BYTES];
    gyro_outcome outcome = GYRO_FAILED;

    Ack(gyro_client* c, const std::uint8_t (&order_id)[GYRO_ID_BYTES]) : client(c) {
      for (int i = 0; i < GYRO_ID_BYTES; ++i) id[i] = order_id[i];
    }
    ~Ack() { gyro_ack(client, id, outcome, outcome == GYRO_FAILED ? "it threw, or said so" : nullptr); }
    Ack(const Ack&) = delete;
    Ack& operator=(const Ack&) = delete;
  };

  gyro_client* client_ = nullptr;
  gyro_status status_ = GYRO_INACTIVE;
};

inline std::string ToString(gyro_status status) { return gyro_strerror(status); }

}  // namespace gyrostat

#endif  // GYROSTAT_GYROSTAT_HPP_
