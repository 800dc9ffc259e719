#include "web/bounded_stream.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "support/manual_clock.h"

namespace gyrostat::web {
namespace {

constexpr base::Milliseconds kTimeout(100);

class BoundedStreamTest : public ::testing::Test {
 protected:
  BoundedStreamTest() : stop_(eventfd(0, EFD_CLOEXEC)) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_), 0);
    stream_ = std::make_unique<BoundedStream>(fds_[0], stop_, kTimeout, &clock_);
  }
  ~BoundedStreamTest() override {
    for (const int each : {fds_[0], fds_[1], stop_}) close(each);
  }
  void Say(const std::string& bytes) { EXPECT_EQ(send(fds_[1], bytes.data(), bytes.size(), 0), ssize_t(bytes.size())); }

  testing::ManualClock clock_;
  int fds_[2] = {-1, -1}, stop_ = -1;
  std::unique_ptr<BoundedStream> stream_;
  char to_[16] = "";
};

TEST_F(BoundedStreamTest, TakesWhatIsThereHoweverLateItIsLookedAt) {
  Say("GET");
  clock_.Advance(10 * kTimeout);
  EXPECT_EQ(stream_->read(to_, sizeof(to_)), 3);
  EXPECT_FALSE(stream_->timed_out());
  EXPECT_EQ(stream_->write("ok", 2), 2);
}

TEST_F(BoundedStreamTest, WaitsForNothingAfterItsDeadline) {
  Say("GET");
  EXPECT_EQ(stream_->read(to_, sizeof(to_)), 3);
  clock_.Advance(kTimeout);
  EXPECT_EQ(stream_->read(to_, sizeof(to_)), -1);
  EXPECT_TRUE(stream_->timed_out());
}

TEST_F(BoundedStreamTest, GivesAnAnswerThatNobodyTakesUpAtItsDeadline) {
  const std::string large(1 << 20, 'x');
  EXPECT_GT(stream_->write(large.data(), large.size()), 0);  // What the socket holds.
  clock_.Advance(kTimeout);
  ssize_t more = 0;
  while ((more = stream_->write(large.data(), large.size())) > 0) {
  }
  EXPECT_EQ(more, -1);
}

}  // namespace
}  // namespace gyrostat::web
