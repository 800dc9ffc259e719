#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace gyrostat::base {
namespace {

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("gyrostat", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace: return spdlog::level::trace;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

void AppendEscaped(std::string_view value, std::string* line) {
  static const char kHex[] = "0123456789abcdef";
  line->push_back('"');
  for (const char raw : value) {
    const auto c = static_cast<unsigned char>(raw);
    if (c == '"' || c == '\\') {
      line->push_back('\\');
      line->push_back(raw);
    } else if (c < 0x20 || c == 0x7f) {
      line->append("\\x");
      line->push_back(kHex[c >> 4]);
      line->push_back(kHex[c & 15]);
    } else {
      line->push_back(raw);
    }
  }
  line->push_back('"');
}

}  // namespace

void Log(LogLevel level, std::string_view event, LogFields fields) {
  const spdlog::level::level_enum to = ToSpdlog(level);
  if (!Logger().should_log(to)) return;
  std::string line;
  AppendEscaped(event, &line);
  for (const LogField& field : fields) {
    line.push_back(' ');
    line.append(field.key);
    line.push_back('=');
    AppendEscaped(field.value, &line);
  }
  Logger().log(to, spdlog::string_view_t(line.data(), line.size()));
}

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

}  // namespace gyrostat::base
