// Between model:: values and protobuf, the client's direction: up what it says, down what the daemon orders.
#pragma once

#include <string>
#include <string_view>

#include "client/src/transport.h"
#include "gyrostat/v1/report.pb.h"
#include "model/intervention.h"
#include "model/report.h"

namespace gyrostat::client {

// Turns the encoded model:: value of `kind` into a message. False when the bytes are not one. `*scratch` is a report to
// decode into, reused from call to call.
bool ToWire(WireKind kind, std::string_view bytes, model::Report* scratch, v1::ClientMessage* out);

// What the daemon says, in the terms of the seam. An order goes encoded into `*order`; `out->bytes` then points into
// it. False with a sentence in `*error` when it cannot be read. Kinds and variants unknown here pass as they are: the
// check behind the seam refuses them with a reason that the daemon gets to hear.
bool FromWire(const v1::DaemonMessage& in, DownMessage* out, std::string* order, std::string* error);

}  // namespace gyrostat::client
