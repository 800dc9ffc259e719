#include "rpc/stream_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace gyrostat::rpc {
namespace {

class FakeStream final : public Stream {
 public:
  void Deliver(const model::Order&) override { ++orders; }
  void Acknowledge(uint64_t sequence) override { acknowledged = sequence; }
  void Cut(const absl::Status&) override { ++cuts; }
  void Drain() override { ++drains; }
  std::atomic<int> orders{0}, cuts{0}, drains{0};
  std::atomic<uint64_t> acknowledged{0};
};

model::AttemptId Attempt(uint8_t number) {
  model::AttemptId id;
  id.bytes[0] = number;
  return id;
}

model::Order OrderFor(const std::string& run, const model::AttemptId& attempt) {
  model::Order order;
  order.run = run;
  order.attempt = attempt;
  return order;
}

TEST(StreamTable, SendsToTheStreamOfTheAttempt) {
  StreamTable table;
  const auto a = std::make_shared<FakeStream>(), b = std::make_shared<FakeStream>();
  ASSERT_TRUE(table.Open(a, 10));
  ASSERT_TRUE(table.Open(b, 10));
  table.Bind(a, "r", Attempt(1));
  table.Bind(b, "r", Attempt(2));
  table.SendOrder(OrderFor("r", Attempt(1)));
  table.Acknowledge("r", Attempt(2), 7);
  EXPECT_EQ(a->orders, 1);
  EXPECT_EQ(b->orders, 0);
  EXPECT_EQ(b->acknowledged, 7u);
}

TEST(StreamTable, CountsOrdersThatReachNobody) {
  StreamTable table;
  const auto a = std::make_shared<FakeStream>();
  ASSERT_TRUE(table.Open(a, 10));
  table.Bind(a, "r", Attempt(1));
  table.SendOrder(OrderFor("r", Attempt(2)));
  table.SendOrder(OrderFor("other", Attempt(1)));
  table.Acknowledge("r", Attempt(2), 1);
  EXPECT_EQ(a->orders, 0);
  EXPECT_EQ(table.probe().orders_undelivered_total.value(), 2u);
}

TEST(StreamTable, HandsBackTheStreamThatWasReplaced) {
  StreamTable table;
  const auto old = std::make_shared<FakeStream>(), young = std::make_shared<FakeStream>();
  ASSERT_TRUE(table.Open(old, 10));
  ASSERT_TRUE(table.Open(young, 10));
  EXPECT_EQ(table.Bind(old, "r", Attempt(1)), nullptr);
  EXPECT_EQ(table.Bind(young, "r", Attempt(1)), old);
  table.Close(old.get());  // Its end must not unbind the newer one.
  table.SendOrder(OrderFor("r", Attempt(1)));
  EXPECT_EQ(young->orders, 1);
  EXPECT_EQ(table.size(), 1u);
  table.Close(young.get());
  table.Close(young.get());
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.probe().streams_open.value(), 0);
}

TEST(StreamTable, BindsNoStreamThatHasEnded) {
  StreamTable table;
  const auto a = std::make_shared<FakeStream>();
  ASSERT_TRUE(table.Open(a, 10));
  table.Close(a.get());
  EXPECT_EQ(table.Bind(a, "r", Attempt(1)), nullptr);
  table.SendOrder(OrderFor("r", Attempt(1)));
  EXPECT_EQ(a->orders, 0);
}

TEST(StreamTable, TakesOnlySoManyAndNoneWhileDraining) {
  StreamTable table;
  const auto a = std::make_shared<FakeStream>(), b = std::make_shared<FakeStream>();
  EXPECT_TRUE(table.Open(a, 1));
  EXPECT_FALSE(table.Open(b, 1));
  table.DrainAll();
  EXPECT_EQ(a->drains, 1);
  EXPECT_FALSE(table.Open(b, 10));
}

TEST(StreamTable, SurvivesStreamsThatComeAndGoWhileOrdersAreSent) {
  StreamTable table;
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop) {
      table.SendOrder(OrderFor("r", Attempt(1)));
      table.Acknowledge("r", Attempt(1), 1);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const auto stream = std::make_shared<FakeStream>();
    ASSERT_TRUE(table.Open(stream, 10));
    table.Bind(stream, "r", Attempt(1));
    table.Close(stream.get());
  }
  stop = true;
  sender.join();
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace gyrostat::rpc
