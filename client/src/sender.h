// The sender: takes frames and records from the training thread, keeps reports until the daemon has made them safe,
// speaks with the daemon through the transport, and passes on the orders that may be applied.
//
// No thread of its own: Turn() does all there is to do and returns, so that tests can drive it. client.cc calls it
// once a millisecond (nobody wakes it: a wake-up would be a system call in the training loop).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "client/src/actuator.h"
#include "client/src/clip_mirror.h"
#include "client/src/counters.h"
#include "client/src/frame.h"
#include "client/src/settings.h"
#include "client/src/transport.h"
#include "client/src/unacked_ring.h"
#include "client/src/wire_records.h"

namespace gyrostat::client {

// What the two threads share.
struct Shared {
  Shared(Settings s, const model::AttemptId& a)
      : settings(std::move(s)),
        attempt(a),
        frames(FrameLayout(settings.model.layers, settings.model.heads), settings.ring_reports),
        records(kRecordsQueued),
        orders(kOrdersQueued) {}

  const Settings settings;
  const model::AttemptId attempt;
  Counters counters;
  FrameRing frames;
  RecordQueue records;
  OrderQueue orders;
};

// Sender thread only.
class Sender {
 public:
  // All pointers outlive the sender.
  Sender(Shared* shared, const TransportApi* transport, const base::Clock* clock);

  // Starts connecting.
  void Open();
  void Turn();
  // Whether waiting longer can bring nothing more to the daemon: all is safe there, or there is no stream.
  bool Settled();
  // Says good-bye, if there is somebody to hear it, and lets the transport go. Takes at most `budget` and little more.
  void Close(base::Milliseconds budget);

 private:
  // Frames and records in the order in which they happened.
  void TakeFromTraining();
  void TakeFrame(const Frame& frame);
  void TakeRecord(Record& record);
  void PushAck(const model::Ack& ack);
  void Push(UnackedRing::Item item);

  void FollowLink();
  void SayHello();
  // Ends the stream and opens another: a hello is only ever the first word of one.
  void Relink();

  void ReceiveAll();
  void OnWelcome(uint64_t sequence);
  void OnAcknowledged(uint64_t sequence);
  void OnOrder(std::string_view bytes);
  void SendAll();

  Shared* shared_;
  SenderCounters* counters_;
  const TransportApi* api_;
  const base::Clock* clock_;
  void* link_ = nullptr;
  UnackedRing unacked_;
  ClipMirror mirror_;

  LinkState state_ = LinkState::kDown;
  uint64_t stream_ = 0;  // The one the flags below speak of.
  bool hello_sent_ = false, welcomed_ = false, ever_welcomed_ = false;
  base::MonotonicTime hello_at_;

  uint64_t last_sequence_ = 0;
  std::optional<model::LocalClips> untold_clips_;  // For the next report.
  std::optional<base::MonotonicTime> last_frame_at_;
  model::Report report_;  // Reused.
  base::ByteWriter writer_;
};

}  // namespace gyrostat::client
