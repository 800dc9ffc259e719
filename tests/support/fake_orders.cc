#include "support/fake_orders.h"

#include <cstdio>
#include <set>
#include <string>

#include "model/intervention.h"
#include "support/fake_transport.h"

namespace {

using gyrostat::testing::FakeDaemon;

FakeDaemon* daemon_instance = nullptr;  // There is one at a time, as the transport has it.

}  // namespace

extern "C" {

void fake_start() { daemon_instance = new FakeDaemon; }

uint64_t fake_reports() { return daemon_instance->reports().size(); }

int fake_order(uint8_t number, const char* kind, const uint32_t* ids, const float* values, const uint32_t* versions,
               size_t count, uint32_t ramp, uint64_t life) {
  const auto kind_of = gyrostat::model::InterventionKindOf(kind);
  const auto hellos = daemon_instance->hellos();
  const auto reports = daemon_instance->reports();
  if (!kind_of || hellos.empty() || reports.empty()) return 0;
  gyrostat::model::Order order;
  order.id.bytes.fill(number);
  order.run = hellos.back().run;
  order.attempt = hellos.back().attempt;
  order.epoch = reports.back().epoch;
  order.kind = *kind_of;
  order.basis = reports.back().boundary;
  order.expires_boundary = reports.back().boundary + life;
  order.intent_id = std::string("intent/") + kind;
  order.ramp = ramp;
  for (size_t i = 0; i < count; ++i) order.sets.push_back({ids[i], values[i], versions[i]});
  daemon_instance->Send(order);
  return 1;
}

void fake_answers(char* text, size_t size) {
  std::string lines;
  for (const gyrostat::model::Ack& ack : daemon_instance->acks())
    lines += std::to_string(ack.order_id.bytes[0]) + " " + gyrostat::model::Token(ack.outcome) + " " + ack.reason +
             "\n";
  std::snprintf(text, size, "%s", lines.c_str());
}

uint64_t fake_attempts() {
  std::set<gyrostat::model::AttemptId> attempts;
  for (const auto& hello : daemon_instance->hellos()) attempts.insert(hello.attempt);
  return attempts.size();
}

void fake_allowed(char* text, size_t size) {
  std::string kinds;
  for (const auto& hello : daemon_instance->hellos()) {
    kinds.clear();
    for (const std::string& kind : hello.allow) kinds += (kinds.empty() ? "" : ",") + kind;
  }
  std::snprintf(text, size, "%s", kinds.c_str());
}
}
