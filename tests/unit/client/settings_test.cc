#include "client/src/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace gyrostat::client {
namespace {

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    for (const char* name : {"GYROSTAT_ADDRESS", "GYROSTAT_RUN", "GYROSTAT_DISABLE"}) unsetenv(name);
    gyro_options_init(&options_);
    options_.address = "127.0.0.1:7431";
  }
  ~SettingsTest() override {
    for (const char* name : {"GYROSTAT_ADDRESS", "GYROSTAT_RUN", "GYROSTAT_DISABLE"}) unsetenv(name);
  }
  gyro_status Read() { return ReadSettings(&options_, &settings_, &error_); }

  gyro_options options_;
  Settings settings_;
  std::string error_;
};

TEST_F(SettingsTest, DefaultsAreThoseOfTheHeader) {
  ASSERT_EQ(Read(), GYRO_OK);
  EXPECT_TRUE(settings_.active);
  EXPECT_EQ(settings_.run, "run");
  EXPECT_EQ(settings_.ring_reports, 64u);
  EXPECT_EQ(settings_.unacked_reports, 1024u);
  EXPECT_EQ(settings_.unacked_bytes, uint64_t{32} << 20);
  EXPECT_EQ(settings_.world_size, 1u);
  EXPECT_FALSE(settings_.allow_qk_clip);
  EXPECT_TRUE(settings_.attn_logit.scaled);
  EXPECT_TRUE(settings_.attn_logit.masked);
  EXPECT_FALSE(settings_.model.master_fp32.has_value());
}

TEST_F(SettingsTest, WithoutAnAddressItIsSilentlyInactive) {
  options_.address = nullptr;
  ASSERT_EQ(Read(), GYRO_OK);
  EXPECT_FALSE(settings_.active);
  EXPECT_EQ(error_, "");
  EXPECT_EQ(ReadSettings(nullptr, &settings_, &error_), GYRO_OK);
  EXPECT_FALSE(settings_.active);
}

TEST_F(SettingsTest, TheEnvironmentFillsInAddressAndRun) {
  options_.address = nullptr;
  setenv("GYROSTAT_ADDRESS", "daemon:1", 1);
  setenv("GYROSTAT_RUN", "from.env", 1);
  ASSERT_EQ(Read(), GYRO_OK);
  EXPECT_TRUE(settings_.active);
  EXPECT_EQ(settings_.address, "daemon:1");
  EXPECT_EQ(settings_.run, "from.env");
  options_.run = "given";
  Read();
  EXPECT_EQ(settings_.run, "given") << "what is given wins";
}

TEST_F(SettingsTest, DisableSwitchesOffAndOnlyTheValueOneDoes) {
  setenv("GYROSTAT_DISABLE", "1", 1);
  ASSERT_EQ(Read(), GYRO_OK);
  EXPECT_FALSE(settings_.active);
  setenv("GYROSTAT_DISABLE", "0", 1);
  ASSERT_EQ(Read(), GYRO_OK);
  EXPECT_TRUE(settings_.active);
}

TEST_F(SettingsTest, OnlyTheLeaderIsActive) {
  options_.world_size = 8;
  options_.rank = 1;
  ASSERT_EQ(Read(), GYRO_OK);
  EXPECT_FALSE(settings_.active);
  options_.rank = 0;
  Read();
  EXPECT_TRUE(settings_.active);
}

int Nothing(void*, float*, size_t) { return 0; }
int Done(void*) { return 1; }

// A MAX alone.
gyro_collective SomeCollective() {
  gyro_collective collective{};
  collective.struct_size = sizeof(collective);
  collective.max_begin = collective.max_wait = &Nothing;
  return collective;
}

TEST_F(SettingsTest, RanksAgreeWhereSomethingIsAllowedAndACollectiveGiven) {
  const gyro_shard shards[] = {{0, 0, 0, 4}, {1, 1, 2, 4}};
  gyro_collective collective = SomeCollective();
  collective.replica = 3;
  collective.shards = shards, collective.shard_count = 2;
  options_.model.layers = 2;
  options_.world_size = 8;
  options_.collective = &collective;
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.agreement_lag, 0u) << "nothing is allowed: nothing is waited for";
  options_.allow = "qk_clip";
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.agreement_lag, 1u);
  EXPECT_EQ(settings_.collective.replica, 3u);
  ASSERT_EQ(settings_.shards.size(), 2u);
  EXPECT_EQ(settings_.shards[1].row_begin, 2u);
  options_.world_size = 1;
  collective.replica = 0;
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.agreement_lag, 0u);
}

TEST_F(SettingsTest, EveryKindMayBeAllowed) {
  options_.allow = "qk_clip,warmup_extension, deepnorm_alpha,lr_scale,grad_clip,skip_step,checkpoint,rollback,halt,"
                   "collect";
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.allow.size(), 10u);
  EXPECT_EQ(settings_.allow[2], "deepnorm_alpha");
}

TEST_F(SettingsTest, AnotherMembershipIsCheckedAsTheFirst) {
  gyro_collective collective = SomeCollective();
  collective.replica = 1;
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(ReadMembership(nullptr, 0, 2, &settings_, &error_), GYRO_INVALID);
  EXPECT_EQ(error_, "collective is NULL, wanted the one of all ranks that go on");
  EXPECT_EQ(ReadMembership(&collective, 2, 2, &settings_, &error_), GYRO_INVALID);
  EXPECT_EQ(error_, "rank is 2, wanted less than world_size = 2");
  EXPECT_EQ(settings_.world_size, 1u);
  EXPECT_EQ(ReadMembership(&collective, 1, 2, &settings_, &error_), GYRO_OK);
  EXPECT_EQ(settings_.world_size, 2u);
  EXPECT_EQ(settings_.collective.replica, 1u);
}

TEST_F(SettingsTest, ACollectiveThatCannotBeCalledIsRefused) {
  gyro_collective collective = SomeCollective();
  collective.max_wait = nullptr;
  options_.collective = &collective;
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, "collective is one that is incomplete, wanted struct_size, max_begin and max_wait set");
  collective = SomeCollective();
  collective.sum_begin = &Nothing;
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, "collective is one half of a SUM, wanted sum_begin and sum_wait both set, or both NULL");
  const gyro_shard outside = {7, 0, 0, 4};
  collective = SomeCollective();
  collective.shards = &outside, collective.shard_count = 1;
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, "collective.shards is one of layer 7, wanted a layer of the model and rows in order");
  collective.shards = nullptr;
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, "collective.shards is NULL, wanted 1 shards");
}

TEST_F(SettingsTest, ACollectiveOfAnotherReleaseIsReadAsFarAsBothKnowIt) {
  struct Newer {
    gyro_collective collective;
    uint64_t something_new = 7;
  } newer{SomeCollective()};
  newer.collective.sum_begin = newer.collective.sum_wait = &Nothing;
  newer.collective.round_done = &Done;
  newer.collective.struct_size = sizeof(newer);
  options_.collective = &newer.collective;
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.collective.round_done, &Done);
  // One that ends with the SUM: what lies behind it is not its.
  newer.collective.struct_size = offsetof(gyro_collective, round_done);
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.collective.round_done, nullptr);
  EXPECT_EQ(settings_.collective.sum_wait, &Nothing);
  --newer.collective.struct_size;
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, "collective is one that is incomplete, wanted struct_size, max_begin and max_wait set");
}

TEST_F(SettingsTest, ReadsTheModelWithTheTokensOfTheJsonl) {
  options_.model.layers = 12;
  options_.model.heads = 8;
  options_.model.kv_heads = 2;
  options_.model.attention = "gqa";
  options_.model.norm_kind = "rmsnorm";
  options_.model.norm_gain = "unit_offset";
  options_.model.norm_placement = "pre";
  options_.model.qk_norm = "per_head";
  options_.model.schedule_kind = "wsd";
  options_.model.master_fp32 = 1;
  options_.model.logit_softcap = 50;
  options_.model.total_steps = 1000;
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.model.KvHeads(), 2u);
  EXPECT_EQ(settings_.model.attention, model::Attention::kGqa);
  EXPECT_EQ(settings_.model.norm_gain, model::NormGain::kUnitOffset);
  EXPECT_EQ(settings_.model.qk_norm, model::QkNorm::kPerHead);
  EXPECT_EQ(settings_.model.schedule_kind, model::ScheduleKind::kWsd);
  EXPECT_EQ(settings_.model.master_fp32, true);
  EXPECT_EQ(settings_.model.logit_softcap, 50);
  EXPECT_EQ(settings_.model.total_steps, 1000u);
  EXPECT_FALSE(settings_.model.warmup_steps.has_value());
}

TEST_F(SettingsTest, ReadsTheAllowList) {
  options_.allow = "qk_clip, lr_scale,,";
  ASSERT_EQ(Read(), GYRO_OK) << error_;
  EXPECT_EQ(settings_.allow, (std::vector<std::string>{"qk_clip", "lr_scale"}));
  EXPECT_TRUE(settings_.allow_qk_clip);
}

struct Bad {
  const char* name;
  void (*spoil)(gyro_options*);
  const char* error;
};

class BadSettings : public SettingsTest, public ::testing::WithParamInterface<Bad> {};

TEST_P(BadSettings, AreRefusedWithFieldSeenAndWanted) {
  GetParam().spoil(&options_);
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, GetParam().error);
  EXPECT_FALSE(settings_.active);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSettings,
    ::testing::Values(
        Bad{"run", [](gyro_options* o) { o->run = "no spaces"; },
            "run is \"no spaces\", wanted 1 to 128 of the characters A-Z a-z 0-9 . _ : -"},
        Bad{"run_of_two_lines", [](gyro_options* o) { o->run = "a\nERROR b"; },
            "run is \"a?ERROR b\", wanted 1 to 128 of the characters A-Z a-z 0-9 . _ : -"},
        Bad{"run_too_long",
            [](gyro_options* o) {
              static const std::string name(10'000, 'r');
              o->run = name.c_str();
            },
            "run is \"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr...\", wanted 1 to 128 of the "
            "characters A-Z a-z 0-9 . _ : -"},
        Bad{"size", [](gyro_options* o) { o->struct_size = 8; },
            "struct_size is 8 (model 168), wanted sizeof(gyro_options) and sizeof(gyro_model): call "
            "gyro_options_init first"},
        Bad{"layers", [](gyro_options* o) { o->model.layers = 1025; }, "model.layers is 1025, wanted 0 to 1024"},
        Bad{"heads", [](gyro_options* o) { o->model.layers = o->model.heads = 600; },
            "model.layers x model.heads is 360000, wanted at most 262144"},
        Bad{"kv_heads",
            [](gyro_options* o) {
              o->model.heads = 8;
              o->model.kv_heads = 3;
            },
            "model.kv_heads is 3, wanted a divisor of model.heads = 8"},
        Bad{"attention", [](gyro_options* o) { o->model.attention = "flash"; },
            "model.attention is \"flash\", wanted mha, gqa, mqa or mla"},
        Bad{"eps", [](gyro_options* o) { o->model.norm_eps = std::numeric_limits<double>::quiet_NaN(); },
            "model.norm_eps is nan, wanted above 0 and at most 1.000000, or 0: not known"},
        Bad{"tau_min", [](gyro_options* o) { o->tau_min = -1; }, "tau_min is -1.000000, wanted 0 to 1000000000.000000"},
        Bad{"rank", [](gyro_options* o) { o->rank = 1; }, "rank is 1, wanted less than world_size = 1"},
        Bad{"allow", [](gyro_options* o) { o->allow = "qk_clip,everything"; },
            "allow is \"everything\", wanted kinds of intervention, comma-separated, e.g. qk_clip"},
        Bad{"ring", [](gyro_options* o) { o->ring_reports = 1; }, "ring_reports is 1, wanted 2 to 4096"},
        Bad{"unacked", [](gyro_options* o) { o->unacked_reports = 70000; },
            "unacked_reports is 70000, wanted 2 to 65536"},
        Bad{"master", [](gyro_options* o) { o->model.master_fp32 = 7; }, "model.master_fp32 is 7, wanted -1 to 1"},
        Bad{"kind",
            [](gyro_options* o) {
              const int kind = 99;
              std::memcpy(&o->logit_kind, &kind, sizeof(kind));
            },
            "logit_kind is 99, wanted 0 to 4"}),
    [](const ::testing::TestParamInfo<Bad>& each) { return each.param.name; });

TEST_F(SettingsTest, ALongTextIsRefusedWithoutReadingOn) {
  const std::string text(5000, 'x');
  options_.framework = text.c_str();
  EXPECT_EQ(Read(), GYRO_INVALID);
  EXPECT_EQ(error_, "framework is longer than 1024 bytes, wanted at most 1024");
}

TEST_F(SettingsTest, ANewerCallersLargerStructIsRead) {
  struct Newer {
    gyro_options options;
    uint64_t something_new = 7;
  } newer{options_};
  newer.options.struct_size = sizeof(newer);
  newer.options.run = "newer";
  ASSERT_EQ(ReadSettings(&newer.options, &settings_, &error_), GYRO_OK) << error_;
  EXPECT_EQ(settings_.run, "newer");
}

}  // namespace
}  // namespace gyrostat::client
