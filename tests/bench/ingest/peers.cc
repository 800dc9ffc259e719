#include "bench/ingest/peers.h"

#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "bench/ingest/child.h"
#include "gyrostat/v1/report.grpc.pb.h"

namespace gyrostat::bench {
namespace {

constexpr size_t kSlotBytes = 1 << 20;
// Below 64, memcpy between two such buffers can be 20 times slower on some machines (rep movsb at close page offsets).
constexpr std::align_val_t kAlignment{64};

char* NewSlot() { return static_cast<char*>(operator new(kSlotBytes, kAlignment)); }

void Ready() {
  std::puts("ready");
  std::fflush(stdout);
}

bool ReadAll(int socket, char* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read(socket, to, bytes);
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

class Stream : public grpc::ServerBidiReactor<v1::ClientMessage, v1::DaemonMessage> {
 public:
  Stream() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (message_.has_report()) Take(message_.report());
    StartRead(&message_);
  }
  void OnDone() override {
    operator delete(slot_, kAlignment);
    delete this;
  }

 private:
  void Take(const v1::Report& report) {
    size_t offset = 0;
    for (const v1::SignalValues& each : report.arrays()) {
      if (offset + each.values().size() > kSlotBytes) return;
      std::memcpy(slot_ + offset, each.values().data(), each.values().size());
      offset += each.values().size();
    }
    if (report.sequence() % kAcknowledgeEvery != 0) return;
    answer_.mutable_acknowledged()->set_sequence(report.sequence());
    StartWrite(&answer_);  // The sender waits for it before the next 64: never two at once.
  }

  char* const slot_ = NewSlot();
  v1::ClientMessage message_;
  v1::DaemonMessage answer_;
};

class Service : public v1::ReportService::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::ClientMessage, v1::DaemonMessage>* Stream(grpc::CallbackServerContext*) override {
    return new bench::Stream();
  }
};

}  // namespace

void ServeRaw(const std::string& socket_path) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path.c_str());
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener, 1) != 0)
    Die("cannot listen on " + socket_path);
  Ready();
  char* const staging = NewSlot();
  char* const slot = NewSlot();
  for (;;) {
    const int peer = accept(listener, nullptr, nullptr);
    if (peer < 0) std::exit(0);
    RawHeader header;
    while (ReadAll(peer, reinterpret_cast<char*>(&header), sizeof(header))) {
      if (header.bytes > kSlotBytes || !ReadAll(peer, staging, header.bytes)) break;
      std::memcpy(slot, staging, header.bytes);
      if (header.sequence % kAcknowledgeEvery == 0 && write(peer, &header.sequence, sizeof(header.sequence)) < 0) break;
    }
    close(peer);
  }
}

void ServeGrpc(const std::string& socket_path, bool keep_heap) {
  if (keep_heap) {
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 64 << 20);
  }
  Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Die("cannot serve on " + socket_path);
  Ready();
  server->Wait();
  std::exit(0);
}

}  // namespace gyrostat::bench
