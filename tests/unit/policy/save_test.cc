// A policy that is saved and loaded at any point answers as if nothing had happened.
#include <gtest/gtest.h>

#include "harness.h"
#include "support/lcg.h"

namespace gyrostat::policy {
namespace {

using model::Mode;

std::string Bytes(const PolicyOutput& out) {
  base::ByteWriter writer;
  PolicyOutput copy = out;
  base::SaveTo(&writer, copy.decisions);
  base::SaveTo(&writer, copy.changed);
  base::SaveTo(&writer, copy.orders);
  base::SaveTo(&writer, copy.findings);
  return writer.Take();
}

std::string Bytes(const RunPolicy& policy) {
  base::ByteWriter writer;
  policy.Save(&writer);
  return writer.Take();
}

// A run with everything in it: noise, losses, refusals, mode changes, approvals, reconnects, a restart of the job.
// With `reload`, the policy is replaced by its own saved copy before every call.
class Story {
 public:
  Story(const PolicyOptions& options, uint64_t seed, bool reload)
      : options_(options), random_(seed), reload_(reload), loop_(options) {}

  std::vector<std::string> Tell() {
    Hello();
    for (int step = 0; step < 700; ++step) Step(step);
    End();
    return told_;
  }

 private:
  void Reload() {
    if (reload_) {
      const std::string bytes = Bytes(loop_.policy);
      RunPolicy fresh("r", options_);
      base::ByteReader in(bytes);
      EXPECT_TRUE(fresh.Load(&in));
      EXPECT_TRUE(in.AtEnd());
      EXPECT_EQ(Bytes(fresh), bytes);
      loop_.policy = std::move(fresh);
    }
    loop_.all.Clear();
  }
  void Told() { told_.push_back(Bytes(loop_.all)); }
  void Hello() {
    Reload();
    loop_.SayHello();
    Told();
  }
  void End() {
    Reload();
    loop_.Call([this](PolicyOutput* out) { loop_.policy.OnEnd(out); });
    Told();
  }
  void Step(int step) {
    loop_.delivers = random_.Below(10) > 0;
    loop_.client.delay = 1 + random_.Below(3);
    if (step % 90 == 30) Mode_(step);
    if (step % 110 == 50) Hello();
    if (step == 300) loop_.client.refuse_all = "a test";
    if (step == 330) loop_.client.refuse_all.reset();
    if (step == 450) loop_.client.Reset();
    if (step == 550) {
      loop_.client.hello.attempt.bytes[0] = 2;
      Hello();
    }
    if (loop_.policy.pending() > 0 && random_.Below(6) == 0) Answer();
    Reload();
    std::vector<double> sizes;
    for (int i = 0; i < 4; ++i) sizes.push_back(10 * (i + 1) * std::exp(0.004 * step + 0.2 * random_.Normal()));
    loop_.Step(sizes);
    Told();
  }
  void Mode_(int step) {
    Reload();
    loop_.SetMode(std::array{Mode::kAct, Mode::kAdvise, Mode::kAct, Mode::kObserve}[step / 90 % 4]);
    Told();
  }
  void Answer() {
    Reload();
    const std::string id = loop_.policy.Open().at(0).id;
    const bool yes = random_.Below(2) == 0;
    EXPECT_TRUE((yes ? loop_.Approve(id) : loop_.Reject(id)).ok());
    Told();
  }

  PolicyOptions options_;
  testing::Lcg random_;
  bool reload_;
  Loop loop_;
  std::vector<std::string> told_;
};

TEST(Save, AtAnyPointChangesNothing) {
  for (const model::ClipWhere where : {model::ClipWhere::kRemote, model::ClipWhere::kLocal})
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      PolicyOptions options = Options(Mode::kAct);
      options.qk_clip.where = where;
      options.qk_clip.quiet_boundaries = 25;
      options.qk_clip.judged_boundaries = 15;
      const std::vector<std::string> plain = Story(options, seed, false).Tell();
      const std::vector<std::string> reloaded = Story(options, seed, true).Tell();
      ASSERT_EQ(plain.size(), reloaded.size());
      for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(plain[i], reloaded[i]) << "seed " << seed << ", call " << i;
    }
}

TEST(Load, RefusesForeignAndShortBytesAndIsThenAsNew) {
  Loop loop(Options(Mode::kAct));
  loop.SayHello();
  loop.Steps(30, {10, 60, 12, 13});
  loop.SetMode(Mode::kAdvise);
  const std::string bytes = Bytes(loop.policy);
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 16) {
    RunPolicy policy("r", Options(Mode::kAct));
    base::ByteReader in(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(policy.Load(&in)) << size;
    EXPECT_EQ(policy.mode(), Mode::kAct);
    EXPECT_TRUE(policy.Open().empty());
    EXPECT_EQ(Bytes(policy), Bytes(RunPolicy("r", Options(Mode::kAct))));
  }
  RunPolicy other("another", Options(Mode::kAct));
  base::ByteReader in(bytes);
  EXPECT_FALSE(other.Load(&in));
}

TEST(Load, OutlivesBytesThatLie) {
  Loop loop(Options(Mode::kAct));
  loop.client.delay = 3;
  loop.SayHello();
  for (int i = 0; i < 8; ++i) loop.Step({10, 60.0 + 10 * i, 50, 13});
  const std::string bytes = Bytes(loop.policy);
  testing::Lcg random(7);
  for (int i = 0; i < 300; ++i) {
    std::string lie = bytes;
    for (int flips = 0; flips < 3; ++flips) {
      char& byte = lie[random.Below(static_cast<uint32_t>(lie.size()))];
      byte = static_cast<char>(byte ^ (1 << random.Below(8)));
    }
    Loop twin(Options(Mode::kAct));
    base::ByteReader in(lie);
    if (!twin.policy.Load(&in)) continue;
    twin.Step({10, 90, 70, 13});
    twin.SayHello();
    twin.Step({10, 90, 70, 13});
    for (const model::Ack& ack : loop.acks) twin.Ack(ack);
    twin.SetMode(Mode::kObserve);
  }
}

}  // namespace
}  // namespace gyrostat::policy
