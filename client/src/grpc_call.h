// One gRPC call: the reactor of one stream, from dialling to its end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "gyrostat/v1/report.grpc.pb.h"

namespace gyrostat::client {

// The sender thread calls the public functions, gRPC's threads the reactions. It owns itself until gRPC has said
// OnDone, so that a call which hangs is left behind, never waited for. gRPC runs no reaction inside Start…, so those
// are called under the lock.
//
// A call is never destroyed on a thread of gRPC's: with the last channel gRPC joins its callback threads, and one that
// would have to join itself aborts the process (1.51). OnDone therefore lays the call aside, and Reap destroys it.
class GrpcCall final : public grpc::ClientBidiReactor<v1::ClientMessage, v1::DaemonMessage>,
                       public std::enable_shared_from_this<GrpcCall> {
 public:
  // Dials `address`.
  static std::shared_ptr<GrpcCall> Start(const std::string& address, const grpc::ChannelArguments& arguments);

  explicit GrpcCall(std::shared_ptr<grpc::Channel> channel);

  // Whether the connection stands. Asks the channel until it once did.
  bool Connected();
  // Whether a write may be started now; then request() may be filled.
  bool CanWrite();
  v1::ClientMessage* request() { return &request_; }
  // Writes request(). False when the stream broke meanwhile.
  bool Write();
  // The next message from the daemon, or false.
  bool Read(v1::DaemonMessage* message);
  // True with how it ended, once it has.
  bool Ended(grpc::Status* status);
  // Ends the stream: in good order if the daemon does so too within `budget`, else by cancelling.
  void Close(base::Milliseconds budget, const base::Clock& clock);
  void Cancel();
  // Destroys the calls that have ended. On any thread but gRPC's; may wait for gRPC's callback threads to end.
  static void Reap();

  // grpc::ClientBidiReactor.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Begin();
  void ReadMoreLocked();
  static void LayAside(std::shared_ptr<GrpcCall> call);
  // Nothing may be started any more; gRPC may end the call.
  void LetGoLocked();

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ReportService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ClientMessage request_;   // gRPC's while writing_.
  v1::DaemonMessage response_;  // gRPC's while reading_.
  bool connected_ = false;      // Sender thread only.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::DaemonMessage> inbox_;
  bool held_ = true;  // We may start operations: gRPC does not end the call.
  bool writing_ = false, reading_ = false, closing_ = false, done_ = false;
  grpc::Status status_;
  std::shared_ptr<GrpcCall> self_;
};

}  // namespace gyrostat::client
