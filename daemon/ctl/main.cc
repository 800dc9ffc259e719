// gyrostatctl: the operator's command line. Reads words and environment, makes the client, runs one command.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "ctl/check_config.h"
#include "ctl/cli.h"
#include "ctl/commands.h"
#include "ctl/console.h"
#include "ctl/deepnorm.h"
#include "ctl/doctor.h"
#include "ctl/doctor_facts.h"
#include "ctl/extend_warmup.h"
#include "ctl/grpc_control.h"
#include "ctl/qk_clip.h"
#include "ctl/replay.h"
#include "ctl/request.h"
#include "ctl/spec_file.h"
#include "ctl/stage.h"
#include "ctl/token.h"

namespace gyrostat::ctl {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Environment ReadEnvironment() {
  Environment environment;
  environment.address = Variable("GYROSTAT_ADDRESS");
  environment.user = Variable("USER");
  if (environment.user.empty()) environment.user = Variable("LOGNAME");
  if (environment.user.empty()) environment.user = "uid " + std::to_string(getuid());
  return environment;
}

Size TerminalSize() {
  winsize window{};
  Size size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 1)
    size = {window.ws_col, window.ws_row};
  return size;
}

// The locale's character set decides, as the C library would: LC_ALL, else LC_CTYPE, else LANG.
bool SpeaksUnicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = Variable(name);
    if (!value.empty())
      return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

Console MakeConsole() {
  Console console{std::cout, std::cerr, base::SystemClock(), {}, isatty(STDOUT_FILENO) != 0, TerminalSize,
                  isatty(STDERR_FILENO) != 0};
  console.style.colour = console.terminal && Variable("NO_COLOR").empty() && Variable("TERM") != "dumb";
  console.style.unicode = SpeaksUnicode();
  console.style.columns = console.terminal ? TerminalSize().columns : 0;
  if (console.terminal && Variable("TERM") != "dumb")
    console.stage = [](Picture picture) { return OpenStage(TerminalSize, std::move(picture)); };
  return console;
}

int Doctor(const Request& request, Control* control, const Console& console) {
  const DoctorFacts facts = GatherFacts(request, control, console.clock.UnixMs());
  const std::vector<Check> checks = Judge(facts);
  if (request.json)
    for (const Check& each : checks) console.out << Json(each) << "\n";
  else
    console.out << RenderChecks(checks, console.style);
  return ExitCode(facts, checks);
}

absl::StatusOr<engine::RunOptions> ReadThresholds(const std::string& file) {
  const absl::StatusOr<config::Config> config = config::LoadFile(file);
  if (!config.ok()) return config.status();
  return config->engine.run;
}

int Run(const Request& request, const Console& console) {
  switch (request.command) {
    case Command::kCheckConfig:
      return CheckConfig(request, console, [](const std::string& file) { return config::LoadFile(file).status(); });
    case Command::kQkClip: return QkClip(request, console);
    case Command::kDeepNorm: return DeepNorm(request, console);
    case Command::kWarmup: return ExtendWarmup(request, console);
    case Command::kReplay: return ReplayFiles(request, console, ReadThresholds);
    case Command::kCheckModel: return CheckModel(request, console);
    case Command::kCompletion: console.out << BashCompletion(); return kDone;
    default: break;
  }
  std::string token;
  if (!request.token_file.empty()) {
    const auto read = ReadToken(request.token_file, request.address);
    if (!read.ok()) return Complain(read.status(), request.address, console);
    token = *read;
  }
  const std::unique_ptr<Control> control = MakeGrpcControl(request.address, token);
  return request.command == Command::kDoctor ? Doctor(request, control.get(), console)
                                             : RunCommand(request, control.get(), console);
}

int Main(int argc, char** argv) {
  const Parsed parsed = Parse(std::vector<std::string>(argv + 1, argv + argc), ReadEnvironment());
  std::cout << parsed.out;
  std::cerr << parsed.err;
  if (!parsed.request) return std::cout.flush() ? parsed.exit_code : kRefused;
  const int code = Run(*parsed.request, MakeConsole());
  if (std::cout.flush()) return code;
  std::cerr << "gyrostatctl: the output could not be written: " << std::strerror(errno) << "\n";
  return kRefused;
}

}  // namespace
}  // namespace gyrostat::ctl

int main(int argc, char** argv) { return gyrostat::ctl::Main(argc, argv); }
