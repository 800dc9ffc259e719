#include "client/src/loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace gyrostat::client {
namespace {

constexpr char kTransportFile[] = "libgyrostat_transport.so";

// The file that `symbol` is in, or "".
const char* FileOf(const void* symbol) {
  Dl_info info;
  return symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

bool MallocIsTheCLibrarys() {
  // Two names of the C library that nobody replaces, and malloc as everybody sees it: the same file or a replaced heap.
  const char* libc = FileOf(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
  return *libc != '\0' && std::strcmp(libc, FileOf(dlsym(RTLD_DEFAULT, "malloc"))) == 0;
}

std::string DefaultPath() {
  const std::string self = FileOf(reinterpret_cast<const void*>(&LoadTransport));
  const size_t slash = self.rfind('/');
  return slash == std::string::npos ? kTransportFile : self.substr(0, slash + 1) + kTransportFile;
}

}  // namespace

const TransportApi* LoadTransport(const std::string& path, std::string* error) {
  const std::string file = path.empty() ? DefaultPath() : path;
  const int deep = MallocIsTheCLibrarys() ? RTLD_DEEPBIND : 0;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | deep);
  if (library == nullptr) {
    const char* why = dlerror();
    *error = "the transport cannot be loaded: " + std::string(why == nullptr ? file : why);
    return nullptr;
  }
  using Table = const TransportApi* (*)();
  const auto table = reinterpret_cast<Table>(dlsym(library, kTransportSymbol));
  const TransportApi* api = table == nullptr ? nullptr : table();
  if (api == nullptr || api->abi != kTransportAbi) {
    *error = file + " is not a transport of version " + std::to_string(kTransportAbi) + " (" +
             (api == nullptr ? "it has no table" : "its version is " + std::to_string(api->abi)) + ")";
    return nullptr;
  }
  return api;
}

}  // namespace gyrostat::client
