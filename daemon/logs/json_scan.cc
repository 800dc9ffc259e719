#include "logs/json_scan.h"

#include "logs/number.h"

namespace gyrostat::logs {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool EndsBare(char c) { return IsBlank(c) || c == ',' || c == ']' || c == '}' || c == ':'; }

}  // namespace

void JsonScanner::Reset() {
  open_.clear();
  state_ = State::kValue;
  token_.clear();
  escape_ = 0;
  is_key_ = empty_ok_ = false;
  error_.clear();
}

bool JsonScanner::Fail(const char* why) {
  error_ = why;
  return false;
}

size_t JsonScanner::Feed(std::string_view bytes, bool stop_at_value) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool was_inside = !AtTop();
    if (state_ == State::kBare && EndsBare(bytes[i])) {
      if (!EndBare()) return i;
      if (stop_at_value && AtTop()) return i;
    }
    if (!Take(bytes[i])) return i;
    if (stop_at_value && was_inside && AtTop()) return i + 1;
  }
  return bytes.size();
}

void JsonScanner::Finish() {
  if (state_ == State::kBare) EndBare();
}

bool JsonScanner::EndBare() {
  const auto number = WholeNumber(token_);
  if (number) {
    events_->Number(*number);
  } else if (token_ == "null" || token_ == "None") {
    events_->Word("null");
  } else if (token_ == "true" || token_ == "True") {
    events_->Word("true");
  } else if (token_ == "false" || token_ == "False") {
    events_->Word("false");
  } else {
    return Fail("wanted a value");
  }
  token_.clear();
  AfterValue();
  return true;
}

bool JsonScanner::EndContainer(char close) {
  const char bracket = close == '}' ? '{' : '[';
  if (open_.empty() || open_.back() != bracket) return Fail("a bracket closes what is not open");
  open_.pop_back();
  events_->End(bracket);
  AfterValue();
  return true;
}

bool JsonScanner::Take(char c) {
  if (state_ == State::kString) return TakeInString(c);
  if (state_ == State::kBare) {
    if (token_.size() >= 400) return Fail("a number or word of more than 400 characters");
    token_.push_back(c);
    return true;
  }
  if (IsBlank(c)) return true;
  switch (state_) {
    case State::kAfter:
      if (c == ',') {
        state_ = open_.back() == '{' ? State::kKeyOrEnd : State::kValue;
        empty_ok_ = true;  // Python and people leave a comma at the end.
        return true;
      }
      return c == '}' || c == ']' ? EndContainer(c) : Fail("wanted a comma or the end of the list");
    case State::kColon:
      if (c != ':') return Fail("wanted a colon behind a key");
      state_ = State::kValue;
      empty_ok_ = false;
      return true;
    case State::kKeyOrEnd:
      if (c == '}') return EndContainer(c);
      if (c != '"' && c != '\'') return Fail("wanted a key in quotes");
      is_key_ = true;
      break;
    default:
      if (c == ']' && empty_ok_) return EndContainer(c);
      if (open_.empty() && c == ',') return true;  // Objects with commas between.
      if (c == '{' || c == '[') {
        if (open_.size() >= kDepthMax) return Fail("more than 64 levels");
        open_.push_back(c);
        events_->Begin(c);
        state_ = c == '{' ? State::kKeyOrEnd : State::kValue;
        empty_ok_ = true;
        return true;
      }
      is_key_ = false;
      break;
  }
  token_.clear();
  if (c == '"' || c == '\'') {
    quote_ = c;
    state_ = State::kString;
    return true;
  }
  if (!IsDigit(c) && !IsAlpha(c) && c != '-' && c != '+' && c != '.') return Fail("wanted a value");
  state_ = State::kBare;
  token_.push_back(c);
  return true;
}

void JsonScanner::EndString() {
  if (is_key_) {
    state_ = State::kColon;
    events_->Key(token_);
  } else {
    AfterValue();
    events_->Text(token_);
  }
  token_.clear();
}

bool JsonScanner::TakeInString(char c) {
  if (token_.size() >= kTokenBytesMax) return Fail("a string of more than 1 MiB");
  if (escape_ == 0) {
    if (c == quote_) EndString();
    else if (c == '\\') escape_ = 1;
    else token_.push_back(c);
    return true;
  }
  if (escape_ == 1) {
    escape_ = 0;
    constexpr std::string_view kNames = "nrtbf";
    constexpr std::string_view kChars = "\n\r\t\b\f";
    const size_t at = kNames.find(c);
    if (c == 'u') {
      escape_ = 5;
      code_ = 0;
    } else {
      token_.push_back(at == std::string_view::npos ? c : kChars[at]);
    }
    return true;
  }
  const char low = Lower(c);
  if (!IsDigit(c) && !(low >= 'a' && low <= 'f')) return Fail("wanted four hex digits behind \\u");
  code_ = code_ * 16 + static_cast<uint32_t>(IsDigit(c) ? c - '0' : low - 'a' + 10);
  if (--escape_ == 1) {
    escape_ = 0;
    AppendCode(code_);
  }
  return true;
}

// Halves of surrogate pairs become U+FFFD: names of runs and signals have none.
void JsonScanner::AppendCode(uint32_t code) {
  if (code >= 0xd800 && code <= 0xdfff) code = 0xfffd;
  if (code < 0x80) {
    token_.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    token_.push_back(static_cast<char>(0xc0 | (code >> 6)));
    token_.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    token_.push_back(static_cast<char>(0xe0 | (code >> 12)));
    token_.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    token_.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

}  // namespace gyrostat::logs
