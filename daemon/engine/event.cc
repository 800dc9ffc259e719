#include "engine/event.h"

#include <utility>

namespace gyrostat::engine {
namespace {

constexpr uint8_t kVersion = 4;  // Of the encoding. Another one is not read: a restart then says so and names the run.

// Makes the alternative number `index` and reads it. False when there is none.
template <size_t I = 0>
bool DecodeBody(size_t index, base::ByteReader* in, EventBody* body) {
  if constexpr (I < std::variant_size_v<EventBody>) {
    if (index == I) return base::LoadFrom(in, &body->emplace<I>());
    return DecodeBody<I + 1>(index, in, body);
  }
  return false;
}

}  // namespace

std::string Encode(const Event& event) {
  base::ByteWriter out;
  out.Put(kVersion);
  out.Put(static_cast<uint8_t>(event.body.index()));
  base::SaveTo(&out, event.at);
  std::visit([&out](const auto& body) { base::SaveTo(&out, body); }, event.body);
  return out.Take();
}

bool Decode(std::string_view bytes, Event* event) {
  base::ByteReader in(bytes);
  const auto version = in.Get<uint8_t>();
  const auto index = in.Get<uint8_t>();
  if (version != kVersion || !base::LoadFrom(&in, &event->at)) return false;
  return DecodeBody(index, &in, &event->body) && in.AtEnd();
}

}  // namespace gyrostat::engine
