// Finds the values in a stream of JSON, as a stream: any cut of the input gives the same events.
//
// Trainers write what is nearly JSON: bare NaN and Infinity, and Python's repr of a dict (single quotes, nan, inf,
// None, True). All of it is read. Numbers too large for a double are infinite. Not thread-safe. Memory: the longest
// string or number, and one byte per level.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyrostat::logs {

class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void Begin(char bracket) = 0;  // '{' or '['.
  virtual void End(char bracket) = 0;    // The same again.
  virtual void Key(std::string_view key) = 0;
  virtual void Number(double value) = 0;
  virtual void Text(std::string_view text) = 0;
  virtual void Word(std::string_view word) = 0;  // null, true, false.
};

class JsonScanner {
 public:
  static constexpr size_t kDepthMax = 64;
  static constexpr size_t kTokenBytesMax = size_t{1} << 20;

  explicit JsonScanner(JsonEvents* events) : events_(events) {}

  // Reads up to the end of `bytes`, or to behind the end of a value at the top level where `stop_at_value` (then more
  // may follow: feed the rest). Returns how many bytes were read; fewer than all of them and not at such an end: what
  // comes next is no JSON, and error() says why.
  size_t Feed(std::string_view bytes, bool stop_at_value = false);
  // No more bytes: a number at the top level ends.
  void Finish();

  bool AtTop() const { return open_.empty() && state_ == State::kValue; }  // Between values.
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  void Reset();

 private:
  enum class State : uint8_t { kValue, kKeyOrEnd, kColon, kAfter, kString, kBare };

  bool Take(char c);      // False: not JSON.
  bool TakeInString(char c);
  void EndString();
  bool EndBare();         // A number or word is complete.
  bool EndContainer(char close);
  void AfterValue() { state_ = open_.empty() ? State::kValue : State::kAfter; }
  bool Fail(const char* why);
  void AppendCode(uint32_t code);

  JsonEvents* events_;
  std::string open_;  // Brackets not yet closed.
  State state_ = State::kValue;
  std::string token_;
  bool is_key_ = false, empty_ok_ = false;
  char quote_ = '"';
  int escape_ = 0;  // 1: behind a backslash; 2..5: hex digits to come, plus one.
  uint32_t code_ = 0;
  std::string error_;
};

}  // namespace gyrostat::logs
