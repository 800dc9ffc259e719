// What anybody who reaches the port can send: nothing of it may touch a job that behaves.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "integration/rpc_daemon.h"

namespace gyrostat::rpc {
namespace {

// A raw connection to the daemon's port.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Sends as far as the daemon listens.
  void Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // Whether the daemon hangs up.
  bool HungUp() {
    char bytes[4096];
    for (;;) {
      pollfd waits{fd_, POLLIN, 0};
      if (poll(&waits, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0) return false;
      if (recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
    }
  }

 private:
  const int fd_;
};

std::string RandomBytes(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

class Hostile : public testing::Test {
 protected:
  Hostile() : good_(daemon_.address) { good_.Meet(HelloOf("good", 'a')); }

  // The one that behaves is served as ever, and so is one that comes later.
  void ExpectUnharmed() {
    ASSERT_TRUE(good_.Say(SampleReport(++sequence_)));
    EXPECT_TRUE(good_.HearAcknowledged(sequence_));
    Job later(daemon_.address);
    later.Meet(HelloOf("later", 'b'));
  }

  RpcDaemon daemon_;
  Job good_;
  uint64_t sequence_ = 0;
};

TEST_F(Hostile, HangsUpOnHttp1) {
  Stranger stranger(daemon_.address);
  stranger.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(stranger.HungUp());
  ExpectUnharmed();
}

TEST_F(Hostile, HangsUpOnTls) {
  Stranger stranger(daemon_.address);
  stranger.Send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + RandomBytes(1, 506));
  EXPECT_TRUE(stranger.HungUp());
  ExpectUnharmed();
}

TEST_F(Hostile, HangsUpOnRandomBytes) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Stranger stranger(daemon_.address);
    stranger.Send(RandomBytes(seed, 4096));
    EXPECT_TRUE(stranger.HungUp()) << seed;
  }
  ExpectUnharmed();
}

TEST_F(Hostile, SurvivesRandomBytesAfterAGoodBeginning) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Stranger stranger(daemon_.address);
    stranger.Send(kPreface + std::string("\0\0\0\4\0\0\0\0\0", 9) + RandomBytes(seed, 4096));
  }
  ExpectUnharmed();
}

TEST_F(Hostile, LetsSilentConnectionsWaitWithoutHarm) {
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Stranger>(daemon_.address));
  for (int i = 0; i < 100; ++i) silent[i]->Send("PRI * HTTP");  // Half a greeting.
  ExpectUnharmed();
}

// A call with bytes of our own choice in place of a message.
grpc::Status CallWithBytes(const std::string& address, const std::string& bytes, grpc::ClientContext* context) {
  grpc::GenericStub stub(Dial(address));
  grpc::CompletionQueue queue;
  SetPatience(context);
  const auto call = stub.PrepareCall(context, "/gyrostat.v1.ReportService/Stream", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return status;
}

TEST_F(Hostile, RefusesAMessageThatIsNone) {
  grpc::ClientContext context;
  const grpc::Status status = CallWithBytes(daemon_.address, "\xff\xff\xff\xff", &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  ExpectUnharmed();
}

TEST_F(Hostile, RefusesAMessageThatIsTooLarge) {
  grpc::ClientContext context;
  const grpc::Status status = CallWithBytes(daemon_.address, std::string((4 << 20) + 1, '\x12'), &context);
  EXPECT_FALSE(status.ok());
  ExpectUnharmed();
}

TEST_F(Hostile, RefusesHeadersThatAreTooLarge) {
  grpc::ClientContext context;
  context.AddMetadata("x-large", std::string(20000, 'x'));
  v1::GetStatusResponse response;
  SetPatience(&context);
  EXPECT_FALSE(daemon_.Control()->GetStatus(&context, {}, &response).ok());
  ExpectUnharmed();
}

TEST_F(Hostile, SurvivesCallsThatAreDroppedAtOnce) {
  const auto stub = v1::ReportService::NewStub(Dial(daemon_.address));
  for (int i = 0; i < 300; ++i) {
    grpc::ClientContext context;
    const auto stream = stub->Stream(&context);
    context.TryCancel();
    stream->Finish();
  }
  ExpectUnharmed();
  EXPECT_TRUE(Eventually([&] { return daemon_.probe().streams_open.value() == 1; }));
}

}  // namespace
}  // namespace gyrostat::rpc
