// A real engine behind a real gRPC port, with a store in memory; and a training job that speaks to it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "engine/engine.h"
#include "gyrostat/v1/control.grpc.pb.h"
#include "gyrostat/v1/report.grpc.pb.h"
#include "integration/memory_store.h"
#include "rpc/server.h"
#include "rpc/stream_table.h"
#include "support/wire_samples.h"

namespace gyrostat::rpc {

// Far above what anything here takes; only a hang meets it.
inline constexpr std::chrono::seconds kPatience{300};

// Waits until `condition` holds. False when patience ran out.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto& clock = base::SystemClock();
  const base::MonotonicTime end = clock.Now() + kPatience;
  base::Mutex mutex;
  base::CondVar never;
  while (!condition()) {
    if (clock.Now() > end) return false;
    base::MutexLock lock(mutex);
    never.WaitUntil(mutex, clock.Now() + base::Milliseconds(1));
  }
  return true;
}

// A channel with connections of its own, as another process would have. gRPC widens the window of a fast connection to
// many megabytes; a test of what happens when it is full cannot say how many.
inline std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

inline void SetPatience(grpc::ClientContext* context) {
  context->set_deadline(gpr_time_from_seconds(kPatience.count(), GPR_TIMESPAN));
}

struct RpcDaemon {
  RpcDaemon() : RpcDaemon(ServerOptions(), engine::EngineOptions()) {}
  RpcDaemon(ServerOptions server_options, engine::EngineOptions engine_options)
      : engine(engine_options, &store, &streams, &base::SystemClock()) {
    if (server_options.listen == ServerOptions().listen) server_options.listen = "127.0.0.1:0";
    if (server_options.hello_deadline == ServerOptions().hello_deadline) server_options.hello_deadline = kPatience;
    server_options.version = "1.2.3";
    server = std::make_unique<Server>(server_options, &engine, &store, &streams, &base::SystemClock(), [] {
      return DaemonStatus{.started_at_unix_ms = 1700000000000, .http_address = "127.0.0.1:7432",
                          .data_dir = "/var/lib/gyrostat", .journal_queue = 5, .ready = true,
                          .not_ready_reason = ""};
    });
    engine.Start();
    const auto started = server->Start();
    EXPECT_TRUE(started.ok()) << started.status();
    address = started.value_or("");
  }
  ~RpcDaemon() {
    store.Hold(false);
    store.Stall(false);
    server.reset();
    engine.Stop();
  }

  Probe& probe() { return streams.probe(); }
  std::unique_ptr<v1::ControlService::Stub> Control() const { return v1::ControlService::NewStub(Dial(address)); }

  MemoryStore store;
  StreamTable streams;
  engine::Engine engine;
  std::unique_ptr<Server> server;
  std::string address;
};

// One stream, read and written in the foreground.
class Job {
 public:
  explicit Job(const std::string& address) : stub_(v1::ReportService::NewStub(Dial(address))) {
    SetPatience(&context_);
    stream_ = stub_->Stream(&context_);
  }
  ~Job() { context_.TryCancel(); }

  bool Say(const v1::Hello& hello) {
    v1::ClientMessage message;
    *message.mutable_hello() = hello;
    return stream_->Write(message);
  }
  bool Say(const v1::Report& report) {
    v1::ClientMessage message;
    *message.mutable_report() = report;
    return stream_->Write(message);
  }
  bool Say(const v1::Ack& ack) {
    v1::ClientMessage message;
    *message.mutable_ack() = ack;
    return stream_->Write(message);
  }
  bool SayBye() {
    v1::ClientMessage message;
    message.mutable_bye()->set_reason("done");
    return stream_->Write(message);
  }
  bool HalfClose() { return stream_->WritesDone(); }

  // The next message; empty when the stream has ended.
  v1::DaemonMessage Hear() {
    v1::DaemonMessage message;
    if (!stream_->Read(&message)) message.Clear();
    return message;
  }
  // Reads until everything up to `sequence` is acknowledged. False when the stream ended before.
  bool HearAcknowledged(uint64_t sequence) {
    while (acknowledged_ < sequence) {
      const v1::DaemonMessage message = Hear();
      if (message.has_acknowledged()) {
        EXPECT_GT(message.acknowledged().sequence(), acknowledged_);
        acknowledged_ = message.acknowledged().sequence();
      } else if (message.message_case() == v1::DaemonMessage::MESSAGE_NOT_SET) {
        return false;
      }
    }
    return true;
  }
  // Hello and its answer.
  v1::Welcome Meet(const v1::Hello& hello) {
    EXPECT_TRUE(Say(hello));
    const v1::DaemonMessage message = Hear();
    EXPECT_TRUE(message.has_welcome()) << message.ShortDebugString();
    acknowledged_ = message.welcome().acknowledged_sequence();
    return message.welcome();
  }
  // Reads what is left, then how it ended.
  grpc::Status End() {
    v1::DaemonMessage message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  std::unique_ptr<v1::ReportService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ClientMessage, v1::DaemonMessage>> stream_;
  uint64_t acknowledged_ = 0;
};

inline v1::Hello HelloOf(const std::string& run, char attempt) {
  v1::Hello hello = SampleHello();
  hello.set_run(run);
  hello.set_attempt(IdBytes(attempt));
  hello.set_world_size(1);
  hello.set_first_sequence(1);
  hello.clear_last_outcomes();
  return hello;
}

}  // namespace gyrostat::rpc
