// Export: every report as it was sent, page by page, and no further than somebody reads.
#include <gmock/gmock.h>

#include "integration/rpc_daemon.h"

namespace gyrostat::rpc {
namespace {

class Export : public testing::Test {
 protected:
  Export() : stub_(daemon_.Control()), job_(daemon_.address) { job_.Meet(HelloOf("r", 'a')); }

  void Train(uint64_t first, uint64_t last) {
    for (uint64_t i = first; i <= last; ++i) ASSERT_TRUE(job_.Say(Sent(i)));
    ASSERT_TRUE(job_.HearAcknowledged(last));
  }
  static v1::Report Sent(uint64_t n) {
    v1::Report report = SampleReport(n);
    report.add_user_names("tokens");
    report.add_user_values(static_cast<double>(n));
    return report;
  }
  grpc::Status Read(const v1::ExportRequest& request, std::vector<v1::ExportChunk>* chunks) {
    grpc::ClientContext context;
    SetPatience(&context);
    const auto reader = stub_->Export(&context, request);
    for (v1::ExportChunk chunk; reader->Read(&chunk);) chunks->push_back(chunk);
    return reader->Finish();
  }

  RpcDaemon daemon_;
  std::unique_ptr<v1::ControlService::Stub> stub_;
  Job job_;
};

TEST_F(Export, SendsWhatWasSent) {
  Train(1, 10);
  v1::ExportRequest request;
  request.set_run("r");
  std::vector<v1::ExportChunk> chunks;
  const grpc::Status status = Read(request, &chunks);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0].attempt().attempt(), IdBytes('a'));
  EXPECT_EQ(chunks[0].attempt().model().layers(), 2u);
  EXPECT_FALSE(chunks[1].has_attempt());
  uint64_t n = 0;
  for (const v1::ExportChunk& chunk : chunks)
    for (const v1::Report& got : chunk.reports()) {
      v1::Report sent = Sent(++n);
      sent.clear_nonfinite_total();
      EXPECT_EQ(got.SerializeAsString(), sent.SerializeAsString()) << got.ShortDebugString();
    }
  EXPECT_EQ(n, 10u);
}

TEST_F(Export, LeavesOutWhatWasNotAskedFor) {
  Train(1, 2);
  v1::ExportRequest request;
  request.set_run("r");
  request.add_signals("loss");
  request.add_signals("tokens");
  std::vector<v1::ExportChunk> chunks;
  ASSERT_TRUE(Read(request, &chunks).ok());
  const v1::Report& report = chunks.at(0).reports(1);
  ASSERT_EQ(report.scalar_signals_size(), 1);
  EXPECT_EQ(report.scalar_signals(0), static_cast<uint32_t>(model::Signal::kLoss));
  EXPECT_EQ(report.arrays_size(), 0);
  EXPECT_EQ(report.user_values(0), 2);
}

TEST_F(Export, RefusesInWords) {
  Train(1, 1);
  std::vector<v1::ExportChunk> chunks;
  v1::ExportRequest request;
  request.set_run("q");
  EXPECT_EQ(Read(request, &chunks).error_message(), "run q is not known; known: r");
  request.set_run("r");
  request.add_signals("no such/name");
  EXPECT_EQ(Read(request, &chunks).error_message(),
            "signals is \"no such/name\", wanted the name of a signal or of a user scalar");
  request.clear_signals();
  request.set_from_step(5);
  request.set_to_step(4);
  EXPECT_EQ(Read(request, &chunks).error_message(), "to_step is 4, wanted at least from_step = 5");
}

// A reader that rests holds up nobody: no page is read ahead of it, other reads come through, reports are taken.
TEST_F(Export, RestsWhileItsReaderDoes) {
  v1::Report wide = SampleReport(1);
  for (int i = 0; i < 60; ++i) {
    wide.add_user_names("a_name_of_one_hundred_and_more_letters_that_fills_the_windows_of_a_connection_sooner_than_"
                        "short_ones_do_" + std::to_string(i));
    wide.add_user_values(i);
  }
  constexpr uint64_t kReports = 1200;  // Some 10 MB: more than what gRPC takes off the reader's hands.
  for (uint64_t i = 1; i <= kReports; ++i) {
    const v1::Report now = SampleReport(i);
    wide.set_sequence(now.sequence());
    wide.set_boundary(now.boundary());
    wide.set_step(now.step());
    ASSERT_TRUE(job_.Say(wide));
  }
  ASSERT_TRUE(job_.HearAcknowledged(kReports));
  grpc::ClientContext context;
  SetPatience(&context);
  v1::ExportRequest request;
  request.set_run("r");
  const auto reader = stub_->Export(&context, request);
  v1::ExportChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  for (int i = 0; i < 50; ++i) {  // As good as waiting: an export that did not rest would be through by then.
    v1::GetSeriesRequest series;
    series.set_run("r");
    series.set_signal("loss");
    grpc::ClientContext other;
    SetPatience(&other);
    const auto points = stub_->GetSeries(&other, series);
    size_t count = 0;
    for (v1::SeriesChunk some; points->Read(&some);) count += static_cast<size_t>(some.step_size());
    const grpc::Status status = points->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();  // Who has read one series may ask for the next at once.
    EXPECT_EQ(count, kReports);
  }
  EXPECT_TRUE(job_.Say(SampleReport(kReports + 1)));
  EXPECT_TRUE(job_.HearAcknowledged(kReports + 1));
  EXPECT_LT(daemon_.store.pages_read(), kReports / 3) << "all of its pages";
  // Whoever goes away frees the place of the next.
  context.TryCancel();
  (void)reader->Finish();
  for (int i = 0; i < 8; ++i) {
    std::vector<v1::ExportChunk> chunks;
    ASSERT_TRUE(Eventually([&] { return chunks.clear(), Read(request, &chunks).ok(); }));
  }
}

}  // namespace
}  // namespace gyrostat::rpc
