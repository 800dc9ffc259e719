#include "ctl/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ctl/request.h"

namespace gyrostat::ctl {
namespace {

constexpr int64_t kNow = 1767225600000;

DoctorFacts Healthy() {
  DoctorFacts facts;
  facts.address = "127.0.0.1:7431";
  facts.now_unix_ms = kNow;
  v1::GetStatusResponse status;
  status.set_version("0.1.0");
  status.set_ready(true);
  status.set_started_at_ms(kNow - 60000);
  status.set_http_address("127.0.0.1:7432");
  status.set_data_dir("/var/lib/gyrostat");
  status.set_default_mode(v1::OBSERVE);
  status.set_streams(1);
  facts.status = status;
  facts.readyz = DoctorFacts::Http{200, "ready"};
  facts.data_dir = DoctorFacts::DataDir{"/var/lib/gyrostat", "", 0750, uint64_t{8} << 30, uint64_t{16} << 30};
  facts.library = "libgyrostat.so";
  facts.library_version = "0.1.0";
  facts.python = "3.11.2";
  facts.torch = "1.13.1";
  return facts;
}

Check Find(const DoctorFacts& facts, const std::string& name) {
  for (const Check& each : Judge(facts))
    if (each.name == name) return each;
  ADD_FAILURE() << "no check " << name;
  return {};
}

TEST(Doctor, AllIsWellWhereAllIsWell) {
  for (const Check& each : Judge(Healthy())) {
    EXPECT_EQ(each.verdict, Verdict::kOk) << each.name << ": " << each.seen;
    EXPECT_EQ(each.advice, "");
  }
  EXPECT_FALSE(AnyFailed(Judge(Healthy())));
}

TEST(Doctor, EverythingButOkComesWithAdvice) {
  DoctorFacts facts = Healthy();
  facts.status->set_ready(false);
  facts.status->set_version("9");
  facts.status->set_journal_failures_total(2);
  facts.status->set_reports_refused_total(2);
  facts.status->set_streams(0);
  facts.health = absl::FailedPreconditionError("NOT_SERVING");
  facts.readyz = DoctorFacts::Http{503, "store: disk full"};
  facts.data_dir->mode = 0777;
  facts.data_dir->bytes_free = 0;
  facts.library_error = "no such file";
  facts.torch = "";
  facts.environment = {{"GYROSTAT_ADRESS", "x"}, {"GYROSTAT_DISABLE", "1"}, {"GYROSTAT_RUN", "a b"}};
  size_t worse = 0;
  for (const Check& each : Judge(facts)) {
    if (each.verdict == Verdict::kOk) continue;
    ++worse;
    EXPECT_NE(each.advice, "") << each.name;
  }
  EXPECT_EQ(worse, 14u);
  EXPECT_TRUE(AnyFailed(Judge(facts)));
  EXPECT_EQ(ExitCode(facts, Judge(facts)), kRefused);
}

TEST(Doctor, WithoutADaemonItSaysWhereToLook) {
  DoctorFacts facts = Healthy();
  facts.status = absl::UnavailableError("connection refused");
  facts.readyz.reset();
  EXPECT_EQ(ExitCode(facts, Judge(facts)), kUnreachable);
  EXPECT_EQ(Find(facts, "daemon").verdict, Verdict::kFail);
  EXPECT_EQ(Find(facts, "daemon").seen, "no answer at 127.0.0.1:7431: connection refused");
  EXPECT_NE(Find(facts, "daemon").advice.find("--data-dir"), std::string::npos);
  facts.endpoints_grpc = "127.0.0.1:40001";
  EXPECT_EQ(Find(facts, "daemon").advice,
            "The daemon of this data directory listens at 127.0.0.1:40001: use --address 127.0.0.1:40001.");
}

TEST(Doctor, DiskSpaceHasTwoLimits) {
  DoctorFacts facts = Healthy();
  const auto verdict = [&](uint64_t bytes) {
    facts.data_dir->bytes_free = bytes;
    return Find(facts, "disk").verdict;
  };
  EXPECT_EQ(verdict(uint64_t{1} << 30), Verdict::kOk);
  EXPECT_EQ(verdict((uint64_t{1} << 30) - 1), Verdict::kWarn);
  EXPECT_EQ(verdict(uint64_t{64} << 20), Verdict::kWarn);
  EXPECT_EQ(verdict((uint64_t{64} << 20) - 1), Verdict::kFail);
}

TEST(Doctor, AClockThatRunsBehindTheDaemonIsSeen) {
  DoctorFacts facts = Healthy();
  facts.status->set_started_at_ms(kNow + 1000);
  EXPECT_EQ(Find(facts, "clock").verdict, Verdict::kOk);
  facts.status->set_started_at_ms(kNow + 1001);
  EXPECT_EQ(Find(facts, "clock").verdict, Verdict::kWarn);
}

TEST(Doctor, AMisspeltVariableIsNoticed) {
  DoctorFacts facts = Healthy();
  facts.environment = {{"GYROSTAT_ADRESS", "h:1"}};
  EXPECT_EQ(Find(facts, "environment").advice, "gyrostat reads no variable of this name; is it misspelt?");
  facts.environment = {{"GYROSTAT_KEEPALIVE_MS", "2000"}};
  EXPECT_EQ(Find(facts, "environment").verdict, Verdict::kOk);
  facts.environment = {{"GYROSTAT_DISABLE", "0"}};
  EXPECT_EQ(Find(facts, "environment").verdict, Verdict::kOk);
}

TEST(Doctor, JsonHasOneObjectForEachCheck) {
  EXPECT_EQ(Json(Find(Healthy(), "grpc health")),
            R"({"check":"grpc health","verdict":"ok","seen":"SERVING","advice":""})");
}

TEST(Doctor, TheTableEndsInACount) {
  DoctorFacts facts = Healthy();
  facts.torch = "";
  const std::string text = RenderChecks(Judge(facts), {});
  EXPECT_NE(text.find("\n0 failed, 1 to look at, 9 ok.\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace gyrostat::ctl
