#include "engine/event.h"

#include <gtest/gtest.h>

#include "support/plain_run.h"

namespace gyrostat::engine {
namespace {

using testing::IdOf;

std::vector<Event> OneOfEach() {
  const Stamp at{12, 34};
  model::Ack ack;
  ack.order_id = IdOf(2);
  ack.reason = "tau 5, wanted 10 or more";
  RunOptions options;
  options.policy.qk_clip.tau = 31;
  options.detect.attn_logit.tau = 31;
  return {{at, HelloEvent{testing::PlainHello("run", IdOf(1))}},
          {at, ReportEvent{IdOf(1), testing::PlainReport(3)}},
          {at, AckEvent{IdOf(1), ack}},
          {at, ByeEvent{IdOf(1), "done"}},
          {at, TickEvent{}},
          {at, ModeEvent{model::Mode::kAct, "anna", "go"}},
          {at, ApproveEvent{"run/1", "anna", "yes"}},
          {at, RejectEvent{"run/1", "anna", "no"}},
          {at, OptionsEvent{options}},
          {at, ProposeEvent{{.kind = model::InterventionKind::kDeepnormAlpha, .alpha = 2.5, .author = "anna"}}}};
}

TEST(Event, ComesBackAsItWas) {
  const auto events = OneOfEach();
  ASSERT_EQ(events.size(), std::variant_size_v<EventBody>);
  for (const Event& event : events) {
    Event back;
    ASSERT_TRUE(Decode(Encode(event), &back)) << event.body.index();
    EXPECT_EQ(back.body.index(), event.body.index());
    EXPECT_EQ(Encode(back), Encode(event));
  }
}

TEST(Event, RefusesEveryTruncationAndWhatFollows) {
  for (const Event& event : OneOfEach()) {
    const std::string bytes = Encode(event);
    Event back;
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(Decode(std::string_view(bytes).substr(0, size), &back)) << event.body.index() << " at " << size;
    EXPECT_FALSE(Decode(bytes + "x", &back));
  }
}

TEST(Event, RefusesAnotherVersionAndAnUnknownKind) {
  std::string bytes = Encode(OneOfEach()[4]);
  Event back;
  bytes[1] = static_cast<char>(std::variant_size_v<EventBody>);
  EXPECT_FALSE(Decode(bytes, &back));
  bytes = Encode(OneOfEach()[4]);
  ++bytes[0];
  EXPECT_FALSE(Decode(bytes, &back));
}

}  // namespace
}  // namespace gyrostat::engine
