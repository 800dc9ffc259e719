#include "ctl/doctor_facts.h"

#include <dlfcn.h>
#include <httplib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "ctl/address.h"

namespace gyrostat::ctl {
namespace {

constexpr int kHttpLimitSeconds = 3;

DoctorFacts::Http Get(const std::string& address, const std::string& path) {
  httplib::Client client("http://" + address);
  client.set_connection_timeout(kHttpLimitSeconds);
  client.set_read_timeout(kHttpLimitSeconds);
  const httplib::Result result = client.Get(path);
  if (!result) return {0, httplib::to_string(result.error())};
  return {result->status, result->body};
}

DoctorFacts::DataDir LookAt(const std::string& path) {
  DoctorFacts::DataDir dir;
  dir.path = path;
  struct stat info {};
  struct statvfs room {};
  if (stat(path.c_str(), &info) != 0 || statvfs(path.c_str(), &room) != 0) {
    dir.error = std::strerror(errno);
    return dir;
  }
  dir.mode = info.st_mode & 07777;
  dir.bytes_free = uint64_t{room.f_bavail} * room.f_frsize;
  dir.bytes_total = uint64_t{room.f_blocks} * room.f_frsize;
  return dir;
}

// Empty unless the file holds an object with the string "grpc".
std::string GrpcOfEndpoints(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  const auto parsed = nlohmann::json::parse(text.str(), nullptr, false);
  if (!parsed.is_object() || !parsed.contains("grpc") || !parsed["grpc"].is_string()) return "";
  return parsed["grpc"];
}

// The library beside this program (a build tree or an installation), else the one the loader finds.
void FindLibrary(DoctorFacts* facts) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = self.parent_path().parent_path() / "lib" / "libgyrostat.so";
  facts->library = std::filesystem::exists(beside, error) ? beside.string() : "libgyrostat.so";
  void* handle = dlopen(facts->library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    facts->library_error = dlerror();
    return;
  }
  using Version = const char* (*)();
  const auto version = reinterpret_cast<Version>(dlsym(handle, "gyro_version"));
  if (version == nullptr) facts->library_error = facts->library + " has no gyro_version: not gyrostat's library";
  else facts->library_version = version();
  dlclose(handle);
}

// What the command prints, without the newline. "" when it fails or takes longer than ten seconds.
std::string OutputOf(const std::string& command) {
  FILE* pipe = popen(("timeout 10 " + command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string out;
  std::array<char, 256> raw;
  while (std::fgets(raw.data(), raw.size(), pipe) != nullptr) out += raw.data();
  if (pclose(pipe) != 0) return "";
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

void ReadEnvironment(DoctorFacts* facts) {
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view entry(*each);
    const size_t equals = entry.find('=');
    if (entry.rfind("GYROSTAT_", 0) == 0 && equals != std::string_view::npos)
      facts->environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  std::sort(facts->environment.begin(), facts->environment.end());
}

}  // namespace

DoctorFacts GatherFacts(const Request& request, Control* control, int64_t now_unix_ms) {
  DoctorFacts facts;
  facts.address = request.address;
  facts.now_unix_ms = now_unix_ms;
  facts.status = control->GetStatus();
  std::string data_dir = request.data_dir;
  if (facts.status.ok()) {
    facts.health = control->CheckHealth();
    if (!facts.status->http_address().empty()) facts.readyz = Get(facts.status->http_address(), "/readyz");
    if (data_dir.empty() && IsOnThisMachine(request.address)) data_dir = facts.status->data_dir();
  }
  if (!data_dir.empty()) {
    facts.data_dir = LookAt(data_dir);
    facts.endpoints_file = data_dir + "/endpoints.json";
    facts.endpoints_grpc = GrpcOfEndpoints(facts.endpoints_file);
  }
  FindLibrary(&facts);
  ReadEnvironment(&facts);
  facts.python = OutputOf("python3 -c 'import platform; print(platform.python_version())'");
  // Reads the version without importing torch, which takes seconds.
  facts.torch = OutputOf("python3 -c 'import importlib.metadata as m; print(m.version(\"torch\"))'");
  return facts;
}

}  // namespace gyrostat::ctl
