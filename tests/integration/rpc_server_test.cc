#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "integration/rpc_daemon.h"

namespace gyrostat::rpc {
namespace {

using testing::HasSubstr;

// The first answer to one message, both as bytes: for services whose protos gRPC does not ship.
std::string AskBytes(const std::string& address, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(Dial(address));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  SetPatience(&context);
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  queue.Next(&tag, &ok);
  std::string text;
  std::vector<grpc::Slice> slices;
  if (ok && answer.Dump(&slices).ok())
    for (const grpc::Slice& each : slices) text.append(reinterpret_cast<const char*>(each.begin()), each.size());
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return text;
}

TEST(Server, SaysThatThePortIsTaken) {
  RpcDaemon daemon;
  ServerOptions options;
  options.listen = daemon.address;
  Server second(options, &daemon.engine, &daemon.store, &daemon.streams, &base::SystemClock(),
                [] { return DaemonStatus(); });
  const auto started = second.Start();
  EXPECT_TRUE(absl::IsUnavailable(started.status()));
  EXPECT_EQ(started.status().message(), "cannot listen for gRPC on " + daemon.address + ": Address already in use");
}

TEST(Server, RefusesToBeReachedFromOutside) {
  RpcDaemon daemon;
  ServerOptions options;
  options.listen = "0.0.0.0:0";
  Server second(options, &daemon.engine, &daemon.store, &daemon.streams, &base::SystemClock(),
                [] { return DaemonStatus(); });
  const auto started = second.Start();
  EXPECT_TRUE(absl::IsInvalidArgument(started.status()));
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("listen.grpc: saw '0.0.0.0:0'"));
}

TEST(Server, ListensOnAUnixSocket) {
  char folder[] = "/tmp/gyrostat-rpc-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ServerOptions options;
  options.listen = "unix:" + std::string(folder) + "/socket";
  {
    RpcDaemon daemon(options, {});
    EXPECT_EQ(daemon.address, options.listen);
    Job job(daemon.address);
    job.Meet(HelloOf("r", 'a'));
  }
  std::filesystem::remove_all(folder);
}

TEST(Server, AnswersHealthChecks) {
  RpcDaemon daemon;
  constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
  EXPECT_EQ(AskBytes(daemon.address, kCheck, ""), "\x08\x01");  // SERVING.
  daemon.server->SetServing(false);
  EXPECT_EQ(AskBytes(daemon.address, kCheck, ""), "\x08\x02");  // NOT_SERVING.
  daemon.server->SetServing(true);
  EXPECT_EQ(AskBytes(daemon.address, kCheck, ""), "\x08\x01");
}

TEST(Server, TellsWhichServicesItHas) {
  RpcDaemon daemon;
  const std::string list_services("\x3a\x00", 2);  // Field 7, an empty string.
  const std::string answer =
      AskBytes(daemon.address, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services);
  EXPECT_THAT(answer, HasSubstr("gyrostat.v1.ReportService"));
  EXPECT_THAT(answer, HasSubstr("gyrostat.v1.ControlService"));
}

TEST(Server, StopsTwiceWithoutHarm) {
  RpcDaemon daemon;
  daemon.server->Stop(base::Milliseconds(100));
  daemon.server->Stop(base::Milliseconds(100));
}

}  // namespace
}  // namespace gyrostat::rpc
