// Which format is it? Decided from the first bytes, never from the name of the file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "logs/reader.h"

namespace gyrostat::logs {

// The format of a file that begins with `head`; `whole` says that there is no more. Nothing: more bytes are needed, or
// `*error` says why this can be no log. A log of text shows its trainer only after its settings, so that up to
// kSniffBytesMax may be asked for; then it is kText.
inline constexpr size_t kSniffBytesMax = size_t{4} << 20;
// More runs of NULs among so many first bytes than a crash, which loses whole blocks, leaves in a log: no text.
inline constexpr size_t kNulBytes = 4096;
inline constexpr size_t kNulRunsMax = 4;
std::optional<Format> Sniff(std::string_view head, bool whole, std::string* error);

// Holds bytes back until the format is known, and then reads on as that reader.
class AutoReader : public Reader {
 public:
  explicit AutoReader(RecordSink* sink) : sink_(sink) {}
  void Feed(std::string_view bytes) override;
  void Finish() override;

  // kAuto until it is known.
  Format format() const { return format_; }
  const std::string& error() const { return error_; }

 private:
  void Decide(bool whole);

  RecordSink* sink_;
  Format format_ = Format::kAuto;
  std::string head_, error_;
  // Looked at for the next time when the head is this long. Not before the NULs of the head would show: what a file is
  // must not depend on the pieces in which it comes.
  size_t ask_again_at_ = kNulBytes;
  std::unique_ptr<Reader> reader_;
};

}  // namespace gyrostat::logs
