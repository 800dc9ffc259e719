// Events with constant text and fields: LogInfo("intervention sent", {{"run", run}, {"step", step}}).
// error: an operator must act. warn: degraded but working, always beside a counter. info: a life event of daemon, run
// or intervention. debug: per decision. trace: per report. log.cc is the only file that names spdlog. Thread-safe.
// Values are escaped (logfmt), so that no name from a client can forge a line. Never log a secret.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace gyrostat::base {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  LogField(std::string_view k, Number v) : key(k), value(std::to_string(v)) {}
  std::string_view key;
  std::string value;
};

using LogFields = std::initializer_list<LogField>;

void Log(LogLevel level, std::string_view event, LogFields fields = {});
inline void LogTrace(std::string_view event, LogFields f = {}) { Log(LogLevel::kTrace, event, f); }
inline void LogDebug(std::string_view event, LogFields f = {}) { Log(LogLevel::kDebug, event, f); }
inline void LogInfo(std::string_view event, LogFields f = {}) { Log(LogLevel::kInfo, event, f); }
inline void LogWarn(std::string_view event, LogFields f = {}) { Log(LogLevel::kWarn, event, f); }
inline void LogError(std::string_view event, LogFields f = {}) { Log(LogLevel::kError, event, f); }

// Lines below `level` are not written. Lines go to stderr.
void SetLogLevel(LogLevel level);

}  // namespace gyrostat::base
