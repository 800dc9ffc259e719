// The C ABI: checks handles and pointers, and lets nothing be thrown across it. The contract is in gyrostat/gyrostat.h.
#include "gyrostat/gyrostat.h"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "client/src/client.h"
#include "client/src/loader.h"
#include "client/src/process.h"
#include "client/src/state.h"

namespace {

namespace gc = gyrostat::client;

// The structs that callers own, as the first release had them.
constexpr uint32_t kOrderSizeV1 = offsetof(gyro_order, k) + sizeof(const gyro_head_factor*);
// Since there are orders of other kinds than qk_clip: who allows one must be able to see what it says.
constexpr uint32_t kOrderSizeV2 = offsetof(gyro_order, ramp) + sizeof(uint32_t);
constexpr uint32_t kStatsSizeV1 = sizeof(gyro_client_stats);

// An enum argument as the int it is: a caller in C may pass any.
template <class Enum>
int Raw(const Enum& value) {
  int raw = 0;
  static_assert(sizeof(raw) == sizeof(value));
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

// Whether the training thread's calls do anything for this handle.
gyro_status Usable(const gyro_client* client) {
  if (gc::InForkedChild()) return GYRO_INACTIVE;
  if (client == nullptr) return GYRO_INVALID;
  return client->active() ? GYRO_OK : GYRO_INACTIVE;
}

// Nothing is thrown across the ABI: where orders are judged or applied, memory may run out.
template <class Call>
gyro_status Guarded(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return GYRO_NO_MEMORY;
  }
}

gyro_status Refuse(gyro_client* client, const char* text) {
  client->shared->counters.training.error.Set(text);
  client->shared->counters.training.invalid.Add();
  return GYRO_INVALID;
}

gyrostat::model::AttemptId RandomAttempt() {
  gyrostat::model::AttemptId id;
  // Sixteen bytes never come short once the kernel's pool is up, and a zero id would only join two attempts in one
  // list.
  while (getrandom(id.bytes.data(), id.bytes.size(), 0) < 0 && errno == EINTR) continue;
  return id;
}

// Loads and guards with all signals blocked: threads that a transport starts now must not take the job's signals.
const gc::TransportApi* Load(const std::string& path, std::string* error) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const gc::TransportApi* transport = gc::LoadTransport(path, error);
  if (transport != nullptr) gc::GuardProcess();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return transport;
}

const gc::JobRegisters& RegistersOf(const gyro_client* client) {
  return client->lockstep != nullptr ? client->lockstep->agreement().registers() : client->actuator.registers();
}

gyro_status NewEpoch(gyro_client* client, std::unique_ptr<gc::RestoredState> state) {
  if (client->lockstep != nullptr) return client->lockstep->NewEpoch(client->Here(), std::move(state));
  return client->actuator.NewEpoch(client->Here(), std::move(state));
}

// Within a step: where this rank leads and the round of the boundary before is there, its report leaves now. What finds
// no memory is done in gyro_step_end.
void ReadEarly(gyro_client* client) {
  if (client->lockstep == nullptr || !client->lockstep->RoundIsThere()) return;
  static_cast<void>(Guarded([client] {
    client->lockstep->ReadEarly(client->Here(), &client->recorder);
    return GYRO_OK;
  }));
}

gyro_status Open(const gyro_options* options, gyro_client** out) {
  gc::Settings settings;
  std::string error;
  gyro_status status = gc::ReadSettings(options, &settings, &error);
  if (status == GYRO_INVALID) settings.model = {};  // Not to be trusted for sizes.
  const bool agrees = status == GYRO_OK && settings.agreement_lag > 0 && !gc::InForkedChild();
  const bool wanted = status == GYRO_OK && settings.active && !gc::InForkedChild();
  const gc::TransportApi* transport = nullptr;
  if (wanted) {
    transport = Load(settings.transport_path, &error);
    if (transport == nullptr) status = GYRO_UNAVAILABLE;
  } else if (status == GYRO_OK) {
    status = GYRO_INACTIVE;
  }
  if (transport == nullptr) settings.ring_reports = 4;  // Hardly used.
  const gyrostat::model::AttemptId drawn = RandomAttempt();
  gc::JoinResult join;
  if (agrees) join = gc::JoinRanks(settings, {.attempt = drawn});
  if (join.attempt.IsZero()) join.attempt = drawn;
  auto client = std::make_unique<gyro_client>(std::move(settings), join.attempt);
  if (agrees) client->Agree(join);
  if (!error.empty()) client->shared->counters.training.error.Set(error);
  if (transport != nullptr) status = client->Start(transport);
  if (agrees && status == GYRO_INACTIVE) status = GYRO_OK;  // A rank without a stream takes part all the same.
  *out = client.release();
  return status;
}

}  // namespace

gyro_status gyro_options_init(gyro_options* options) {
  if (options == nullptr) return GYRO_INVALID;
  std::memset(options, 0, sizeof(*options));
  options->struct_size = sizeof(*options);
  options->model.struct_size = sizeof(options->model);
  options->model.master_fp32 = -1;
  options->logit_scaled = options->logit_masked = 1;
  return GYRO_OK;
}

gyro_status gyro_open(const gyro_options* options, gyro_client** client) {
  if (client == nullptr) return GYRO_INVALID;
  *client = nullptr;
  try {
    return Open(options, client);
  } catch (const std::bad_alloc&) {
    return GYRO_NO_MEMORY;
  }
}

gyro_status gyro_close(gyro_client* client, uint32_t flush_ms) {
  if (gc::InForkedChild()) return GYRO_INACTIVE;  // The parent's memory: nothing to give back.
  if (client == nullptr) return GYRO_INVALID;
  if (!client->active()) {
    delete client;
    return GYRO_INACTIVE;
  }
  if (client->lockstep != nullptr) client->lockstep->Closing(&client->recorder);
  if (gc::Exiting()) return GYRO_OK;  // The sender is parked. The process is about to be gone, and all this with it.
  // More than a minute is not a budget; it also keeps the arithmetic of deadlines far from overflow.
  if (client->worker != nullptr) client->worker->Stop(gyrostat::base::Milliseconds(std::min(flush_ms, 60'000u)));
  delete client;  // What a sender that did not end still needs it owns itself.
  return GYRO_OK;
}

gyro_status gyro_step_begin(gyro_client* client, int64_t step) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  if (client->lockstep != nullptr) client->lockstep->BeginStep(client->Here());
  else client->actuator.BeginStep(client->Here());
  return client->recorder.Begin(step);
}

gyro_status gyro_record_scalar(gyro_client* client, const char* signal, double value) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  ReadEarly(client);
  return client->recorder.Scalar(signal, value);
}

gyro_status gyro_record_array(gyro_client* client, const char* signal, const float* values, size_t count) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  ReadEarly(client);
  return client->recorder.Array(signal, values, count);
}

gyro_status gyro_record_attn_logit_max(gyro_client* client, const float* values, size_t count, gyro_logit_kind kind) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  ReadEarly(client);
  return client->recorder.AttnLogitMax(values, count, Raw(kind));
}

gyro_status gyro_record_layer_attn_logit_max(gyro_client* client, uint32_t layer, const float* values, size_t count,
                                             gyro_logit_kind kind) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  ReadEarly(client);
  return client->recorder.LayerAttnLogitMax(layer, values, count, Raw(kind));
}

gyro_status gyro_progress(gyro_client* client) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  ReadEarly(client);
  return GYRO_OK;
}

gyro_status gyro_step_end(gyro_client* client) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  if (client->lockstep == nullptr) {
    const gyro_status ended = client->recorder.End(client->actuator.epoch(), client->actuator.ledger().version());
    if (ended == GYRO_OK || ended == GYRO_DROPPED) client->actuator.EndStep(client->recorder.boundary());
    return ended;
  }
  const gc::Agreement& agreement = client->lockstep->agreement();
  const gyro_status ended = client->recorder.End(agreement.epoch(), agreement.ledger().version());
  if (ended != GYRO_OK && ended != GYRO_DROPPED) return ended;
  const gyro_status agreed =
      Guarded([client] { return client->lockstep->StepEnded(client->Here(), &client->recorder); });
  return agreed == GYRO_OK ? ended : agreed;
}

gyro_status gyro_poll(gyro_client* client, gyro_order* order) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  const gc::Settings& settings = client->shared->settings;
  const bool clips_only = settings.allow.size() == (settings.allow_qk_clip ? 1 : 0);
  if (order == nullptr || order->struct_size < (clips_only ? kOrderSizeV1 : kOrderSizeV2))
    return Refuse(client, "gyro_poll wants an order with struct_size = sizeof(gyro_order)");
  if (client->recorder.open()) {
    client->shared->counters.training.error.Set("gyro_poll was called between gyro_step_begin and gyro_step_end");
    return GYRO_STATE;
  }
  return Guarded([client, order] {
    return client->lockstep != nullptr ? client->lockstep->Poll(client->Here(), order)
                                       : client->actuator.Poll(client->Here(), order);
  });
}

gyro_status gyro_ack(gyro_client* client, const uint8_t* id, gyro_outcome outcome, const char* reason) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  if (id == nullptr) return Refuse(client, "gyro_ack wants the order's id, it got NULL");
  const int raw = Raw(outcome);
  if (raw != GYRO_APPLIED && raw != GYRO_REFUSED && raw != GYRO_FAILED)
    return Refuse(client, "gyro_ack wants GYRO_APPLIED, GYRO_REFUSED or GYRO_FAILED as outcome");
  return Guarded([client, id, raw, reason] {
    return client->lockstep != nullptr ? client->lockstep->Ack(client->Here(), id, raw, reason)
                                       : client->actuator.Ack(client->Here(), id, raw, reason);
  });
}

gyro_status gyro_learning_rate(gyro_client* client, double base, double* rate) {
  if (rate == nullptr) return GYRO_INVALID;
  *rate = base;
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  ReadEarly(client);
  const gyrostat::model::Boundary to_come = client->recorder.boundary() + 1;
  *rate = client->lockstep != nullptr ? client->lockstep->Rate(base, to_come) : client->actuator.Rate(base, to_come);
  return GYRO_OK;
}

gyro_status gyro_register_value(gyro_client* client, uint32_t id, float* value) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  const gyrostat::remedy::RegisterFile& file = RegistersOf(client).file();
  if (value == nullptr || id >= file.size() || file.bounds(id).max <= 0)
    return Refuse(client, "gyro_register_value wants a register that the job has, and room for its value");
  *value = file.at(id).At(client->recorder.boundary());
  return GYRO_OK;
}

gyro_status gyro_observe(gyro_client* client, uint32_t id, float value) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  const gyrostat::remedy::RegisterFile& file = RegistersOf(client).file();
  if (id >= file.size() || file.bounds(id).max <= 0)
    return Refuse(client, "gyro_observe wants a register that the job has");
  if (client->lockstep != nullptr)
    client->lockstep->Observe(id, value);
  else
    client->actuator.Observe(id, value);
  return GYRO_OK;
}

gyro_status gyro_hold(gyro_client* client, const char* reason) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  return Guarded([client, reason] {
    if (client->lockstep != nullptr)
      client->lockstep->Hold(reason);
    else
      client->actuator.Hold(reason);
    return GYRO_OK;
  });
}

gyro_status gyro_reset(gyro_client* client) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  return NewEpoch(client, nullptr);
}

gyro_status gyro_rejoin(gyro_client* client, const gyro_collective* collective, uint32_t rank, uint32_t world_size) {
  if (const gyro_status status = Usable(client); status != GYRO_OK) return status;
  if (client->lockstep == nullptr)
    return Refuse(client, "gyro_rejoin wants a client that was opened with a collective");
  if (client->recorder.open()) {
    client->shared->counters.training.error.Set("gyro_rejoin was called between gyro_step_begin and gyro_step_end");
    return GYRO_STATE;
  }
  try {
    gc::Settings next = client->lockstep->settings();
    std::string error;
    if (gc::ReadMembership(collective, rank, world_size, &next, &error) != GYRO_OK)
      return Refuse(client, error.c_str());
    return client->Rejoin(std::move(next));
  } catch (const std::bad_alloc&) {
    return GYRO_NO_MEMORY;
  }
}

gyro_status gyro_state_save(gyro_client* client, const uint8_t** data, size_t* size) {
  if (gc::InForkedChild()) return GYRO_INACTIVE;
  if (client == nullptr || data == nullptr || size == nullptr) return GYRO_INVALID;
  try {
    const gyrostat::model::Boundary boundary = client->recorder.boundary();
    if (client->lockstep != nullptr) {
      const gc::Agreement& all = client->lockstep->agreement();
      client->saved_state =
          gc::SaveState(all.attempt(), all.epoch(), boundary, all.ledger(), all.Outcomes(), all.registers());
    } else {
      client->saved_state = gc::SaveState(client->shared->attempt, client->actuator.epoch(), boundary,
                                          client->actuator.ledger(), client->actuator.Outcomes(),
                                          client->actuator.registers());
    }
  } catch (const std::bad_alloc&) {
    return GYRO_NO_MEMORY;
  }
  *data = reinterpret_cast<const uint8_t*>(client->saved_state.data());
  *size = client->saved_state.size();
  return GYRO_OK;
}

gyro_status gyro_state_load(gyro_client* client, const uint8_t* data, size_t size) {
  if (gc::InForkedChild()) return GYRO_INACTIVE;
  if (client == nullptr) return GYRO_INVALID;
  if (data == nullptr) return Refuse(client, "gyro_state_load wants data, it got NULL");
  try {
    std::string error;
    const gyrostat::model::ModelSpec& model = client->shared->settings.model;
    auto state = gc::LoadState({reinterpret_cast<const char*>(data), size}, model.layers, model.heads, &error);
    if (state == nullptr) return Refuse(client, error.c_str());
    const gyro_status status = NewEpoch(client, std::move(state));
    if (status == GYRO_INVALID) client->shared->counters.training.invalid.Add();  // Its error is set.
    // Of an inert client: nobody else would take the record.
    if (!client->active()) client->shared->records.Release();
    return status;
  } catch (const std::bad_alloc&) {
    return GYRO_NO_MEMORY;
  }
}

gyro_status gyro_stats(const gyro_client* client, gyro_client_stats* stats) {
  if (gc::InForkedChild()) return GYRO_INACTIVE;
  if (client == nullptr || stats == nullptr || stats->struct_size < kStatsSizeV1) return GYRO_INVALID;
  const gc::TrainingCounters& training = client->shared->counters.training;
  const gc::SenderCounters& sender = client->shared->counters.sender;
  gyro_client_stats now{};
  now.struct_size = stats->struct_size;
  now.connected = static_cast<int32_t>(sender.connected.value());
  now.reports_total = training.reports.value();
  now.reports_acked = sender.acked.value();
  now.dropped_hot = training.dropped_hot.value();
  now.dropped_unacked = sender.dropped_unacked.value();
  now.invalid_total = training.invalid.value();
  now.reconnects_total = sender.reconnects.value();
  now.orders_received = sender.orders_received.value();
  now.orders_applied = training.orders_applied.value();
  now.orders_refused = training.orders_refused.value() + sender.orders_refused.value();
  now.boundary = training.boundary.value();
  now.epoch = static_cast<uint32_t>(training.epoch.value());
  now.ledger_version = training.ledger_version.value();
  const gc::ErrorCell& error = training.error.NewerThan(sender.error) ? training.error : sender.error;
  if (!error.Get(now.last_error)) now.last_error[0] = '\0';
  std::memcpy(stats, &now, std::min<size_t>(stats->struct_size, sizeof(now)));
  return client->active() ? GYRO_OK : GYRO_INACTIVE;
}

const char* gyro_strerror(gyro_status status) {
  switch (Raw(status)) {
    case GYRO_OK:
      return "done";
    case GYRO_NONE:
      return "nothing to poll";
    case GYRO_INACTIVE:
      return "inactive: switched off, no address, not the leader, or a forked child";
    case GYRO_DROPPED:
      return "dropped: the ring was full, the report is lost and counted";
    case GYRO_INVALID:
      return "an argument is wrong: gyro_stats says which in last_error";
    case GYRO_STATE:
      return "called in the wrong order";
    case GYRO_UNAVAILABLE:
      return "the transport library could not be loaded: training goes on unwatched";
    case GYRO_NO_MEMORY:
      return "out of memory";
    case GYRO_UNSURE:
      return "unsure: the ranks may have become unequal; nothing is applied until all load one state";
  }
  return "not a status of gyrostat";
}

const char* gyro_version(void) { return GYRO_VERSION; }
