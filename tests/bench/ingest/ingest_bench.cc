// What a report of 128 × 128 heads costs the daemon in CPU, as a ratio to a blocking socket that copies the same
// values.
//
// Receivers run in processes of their own, in interleaved rounds on the same machine; only their CPU counts, not the
// sender's and not the time. Absolute numbers differ by machine and load, ratios hardly: the gates are on ratios.
#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/ingest/child.h"
#include "bench/ingest/peers.h"
#include "gyrostat/v1/report.grpc.pb.h"
#include "support/synthetic_run.h"

namespace gyrostat::bench {
namespace {

constexpr uint64_t kWarmUp = 256;      // Reports before counting starts: connections, page faults, detectors' windows.
constexpr size_t kDistinct = 64;       // Reports that are generated; the rest repeat them under new numbers.
constexpr int64_t kLimitSeconds = 120;  // For one round.

struct Options {
  std::string self, daemon;
  uint64_t reports = 4096;  // A multiple of kAcknowledgeEvery.
  uint32_t rounds = 5;
};

std::vector<v1::ClientMessage> MakeReports(const std::string& run, v1::ClientMessage* hello) {
  testing::SyntheticOptions synthetic;
  synthetic.run = run;
  synthetic.attempt = std::string(16, 'b');
  synthetic.layers = synthetic.heads = 128;
  testing::SyntheticRun source(synthetic);
  *hello->mutable_hello() = source.MakeHello();
  std::vector<v1::ClientMessage> reports(kDistinct);
  for (v1::ClientMessage& each : reports) source.NextReport(each.mutable_report());
  return reports;
}

// Sends `total` reports over the report service; returns the receiver's CPU per report after the warm-up.
double DriveGrpc(const std::string& address, const Child& child, uint64_t total) {
  v1::ClientMessage hello;
  std::vector<v1::ClientMessage> reports = MakeReports("bench", &hello);
  const auto stub =
      v1::ReportService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_seconds(kLimitSeconds, GPR_TIMESPAN));
  const auto stream = stub->Stream(&context);
  if (!stream->Write(hello)) Die("the receiver at " + address + " refuses the hello");
  uint64_t acknowledged = 0;
  int64_t before = 0;
  v1::DaemonMessage answer;
  for (uint64_t sequence = 1; sequence <= kWarmUp + total; ++sequence) {
    v1::ClientMessage& message = reports[sequence % kDistinct];
    v1::Report* report = message.mutable_report();
    report->set_sequence(sequence);
    report->set_boundary(sequence - 1);
    report->set_step(static_cast<int64_t>(sequence) - 1);
    if (!stream->Write(message)) Die("the stream to " + address + " broke: " + stream->Finish().error_message());
    if (sequence % kAcknowledgeEvery != 0) continue;
    while (acknowledged < sequence) {
      if (!stream->Read(&answer)) Die("the stream to " + address + " broke: " + stream->Finish().error_message());
      if (answer.has_acknowledged()) acknowledged = answer.acknowledged().sequence();
    }
    if (sequence == kWarmUp) before = child.CpuNs();
  }
  const int64_t after = child.CpuNs();
  context.TryCancel();
  return static_cast<double>(after - before) / static_cast<double>(total);
}

double DriveRaw(const std::string& path, const Child& child, uint64_t total) {
  v1::ClientMessage hello;
  std::vector<std::string> payloads;
  for (const v1::ClientMessage& each : MakeReports("bench", &hello)) {
    std::string bytes(sizeof(RawHeader), '\0');
    for (const v1::SignalValues& values : each.report().arrays()) bytes += values.values();
    payloads.push_back(std::move(bytes));
  }
  const int peer = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  if (connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Die("cannot connect to " + path);
  int64_t before = 0;
  for (uint64_t sequence = 1; sequence <= kWarmUp + total; ++sequence) {
    std::string& bytes = payloads[sequence % kDistinct];
    const RawHeader header{sequence, bytes.size() - sizeof(RawHeader)};
    bytes.replace(0, sizeof(header), reinterpret_cast<const char*>(&header), sizeof(header));
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t wrote = write(peer, bytes.data() + sent, bytes.size() - sent);
      if (wrote <= 0) Die("the socket " + path + " broke");
      sent += static_cast<size_t>(wrote);
    }
    if (sequence % kAcknowledgeEvery != 0) continue;
    unsigned long long acknowledged = 0;
    if (read(peer, &acknowledged, sizeof(acknowledged)) != sizeof(acknowledged)) Die("the socket " + path + " broke");
    if (sequence == kWarmUp) before = child.CpuNs();
  }
  const int64_t after = child.CpuNs();
  close(peer);
  return static_cast<double>(after - before) / static_cast<double>(total);
}

// One round of each receiver, ns of CPU per report.
struct Round {
  double raw = 0, grpc = 0, grpc_default_heap = 0, daemon = 0;
};

Round RunRound(const Options& options, const std::string& directory) {
  Round round;
  {
    const std::string path = directory + "/raw";
    round.raw = DriveRaw(path, Child({options.self, "--peer", "raw", "--socket", path}), options.reports);
  }
  for (const bool keep_heap : {true, false}) {
    const std::string path = directory + (keep_heap ? "/kept" : "/default");
    const Child child({options.self, "--peer", keep_heap ? "grpc" : "grpc-default-heap", "--socket", path});
    (keep_heap ? round.grpc : round.grpc_default_heap) = DriveGrpc("unix:" + path, child, options.reports);
  }
  const Child child({options.daemon, "--data-dir", directory + "/data", "--grpc-listen", "127.0.0.1:0",
                     "--http-listen", "127.0.0.1:0"});
  const std::string& line = child.first_line();
  const size_t begin = line.find("grpc=");
  if (begin == std::string::npos) Die("gyrostatd says \"" + line + "\", wanted \"gyrostatd ready grpc=HOST:PORT …\"");
  round.daemon = DriveGrpc(line.substr(begin + 5, line.find(' ', begin) - begin - 5), child, options.reports);
  return round;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Prints a row; false when the ratio is over its gate.
bool Row(const char* what, double us, const char* peer, double ratio, double goal, double gate) {
  const bool good = ratio <= gate;
  std::printf("  %-28s %9.1f us   %6.2f x %-24s goal %.2f, gate %.2f%s\n", what, us, ratio, peer, goal, gate,
              good ? "" : "   OVER THE GATE");
  return good;
}

int Measure(const Options& options) {
  char directory_template[] = "/tmp/bench_ingest_XXXXXX";
  const char* directory = mkdtemp(directory_template);
  if (directory == nullptr) Die("no temporary folder");
  std::vector<Round> rounds;
  for (uint32_t i = 0; i < options.rounds; ++i) {
    rounds.push_back(RunRound(options, directory));
    std::filesystem::remove_all(directory);
    std::filesystem::create_directory(directory);
  }
  std::filesystem::remove_all(directory);
  // Ratios within a round, then their median: what the machine did meanwhile cancels out.
  const auto median = [&](auto value) {
    std::vector<double> values;
    for (const Round& each : rounds) values.push_back(value(each));
    return Median(values);
  };
  std::printf("CPU of the receiver per report of 128 x 128 heads (16,768 floats), medians of %u interleaved rounds\n",
              options.rounds);
  std::printf("  %-28s %9.1f us\n", "unix socket and memcpy", median([](const Round& r) { return r.raw; }) / 1000);
  bool good = Row("gRPC, heap kept", median([](const Round& r) { return r.grpc; }) / 1000, "the socket",
                  median([](const Round& r) { return r.grpc / r.raw; }), 3, 4.5);
  good = Row("gRPC, default heap", median([](const Round& r) { return r.grpc_default_heap; }) / 1000,
             "(kept / default)", median([](const Round& r) { return r.grpc / r.grpc_default_heap; }), 0.65, 0.85) &&
         good;
  good = Row("gyrostatd", median([](const Round& r) { return r.daemon; }) / 1000, "gRPC, heap kept",
             median([](const Round& r) { return r.daemon / r.grpc; }), 2, 3) &&
         good;
  std::printf("  gyrostatd costs %.1f x the socket: detection, policy and the journal are in it\n",
              median([](const Round& r) { return r.daemon / r.raw; }));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace gyrostat::bench

int main(int argc, char** argv) {
  gyrostat::bench::Options options;
  options.self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string peer, socket_path;
  CLI::App app{"Measures what a report costs the daemon. Exit code: 0 within the gates, 1 over one, 2 not measured.",
               "bench_ingest"};
  app.add_option("--daemon", options.daemon, "gyrostatd to measure");
  app.add_option("--reports", options.reports, "Reports a round; a multiple of 64")
      ->check(CLI::Range(64, 1000000))->capture_default_str();
  app.add_option("--rounds", options.rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--peer", peer, "Serve as raw, grpc or grpc-default-heap: what the bench starts itself as");
  app.add_option("--socket", socket_path, "Of --peer");
  CLI11_PARSE(app, argc, argv);
  if (peer == "raw") gyrostat::bench::ServeRaw(socket_path);
  if (!peer.empty()) gyrostat::bench::ServeGrpc(socket_path, peer == "grpc");
  if (options.daemon.empty()) gyrostat::bench::Die("--daemon is missing: the gyrostatd to measure");
  if (options.reports % gyrostat::bench::kAcknowledgeEvery != 0)
    gyrostat::bench::Die("--reports " + std::to_string(options.reports) + " is no multiple of 64");
  return gyrostat::bench::Measure(options);
}
