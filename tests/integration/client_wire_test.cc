// What the client's transport makes of the wire, in both directions: registers in the hello, sets in an order.
#include <gtest/gtest.h>

#include <string>

#include "base/archive.h"
#include "base/bytes.h"
#include "client/src/grpc_convert.h"
#include "model/intervention.h"

namespace gyrostat::client {
namespace {

v1::DaemonMessage OrderOfSets() {
  v1::DaemonMessage message;
  v1::Order* order = message.mutable_order();
  order->set_order_id(std::string(16, 'o'));
  order->set_attempt(std::string(16, 'a'));
  order->set_run("r");
  order->set_epoch(2);
  order->set_kind(static_cast<v1::InterventionKind>(model::InterventionKind::kDeepnormAlpha));
  order->set_basis(40);
  order->set_expires_boundary(56);
  order->set_intent_id("r/3");
  order->mutable_sets()->set_ramp_boundaries(50);
  for (const uint32_t id : {64u, 65u}) {
    order->mutable_sets()->add_id(id);
    order->mutable_sets()->add_value(2.5f);
    order->mutable_sets()->add_expected_version(7);
  }
  return message;
}

TEST(ClientWire, AnOrderBringsItsSets) {
  DownMessage down;
  std::string bytes, error;
  ASSERT_TRUE(FromWire(OrderOfSets(), &down, &bytes, &error)) << error;
  base::ByteReader reader(bytes);
  model::Order order;
  ASSERT_TRUE(base::LoadFrom(&reader, &order));
  EXPECT_EQ(order.kind, model::InterventionKind::kDeepnormAlpha);
  EXPECT_EQ(order.where, model::ClipWhere::kRemote);
  EXPECT_EQ(order.ramp, 50u);
  EXPECT_EQ(order.sets, (std::vector<model::RegisterSet>{{64, 2.5f, 7}, {65, 2.5f, 7}}));
  EXPECT_TRUE(order.entries.empty());
}

TEST(ClientWire, SetsThatDoNotMatchAreAnErrorInWords) {
  v1::DaemonMessage message = OrderOfSets();
  message.mutable_order()->mutable_sets()->add_value(1);
  DownMessage down;
  std::string bytes, error;
  EXPECT_FALSE(FromWire(message, &down, &bytes, &error));
  EXPECT_EQ(error, "the daemon sent an order whose sets have 2 registers, 3 values and 2 versions, wanted as many of "
                   "each");
}

TEST(ClientWire, AHelloTellsItsRegisters) {
  model::Hello hello;
  hello.run = "r";
  hello.registers = {{.id = 65, .from = 1, .to = 4, .first = -25, .ramp = 100, .version = 3}};
  base::ByteWriter writer;
  base::SaveTo(&writer, hello);
  model::Report scratch;
  v1::ClientMessage message;
  ASSERT_TRUE(ToWire(WireKind::kHello, writer.bytes(), &scratch, &message));
  ASSERT_EQ(message.hello().registers_size(), 1);
  const v1::RegisterReading& reading = message.hello().registers(0);
  EXPECT_EQ(reading.id(), 65u);
  EXPECT_EQ(reading.from(), 1);
  EXPECT_EQ(reading.to(), 4);
  EXPECT_EQ(reading.first_boundary(), -25);
  EXPECT_EQ(reading.ramp_boundaries(), 100u);
  EXPECT_EQ(reading.version(), 3u);
}

}  // namespace
}  // namespace gyrostat::client
