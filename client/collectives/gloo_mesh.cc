#include "client/collectives/gloo_mesh.h"

#include <fcntl.h>
#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gyrostat::collectives {
namespace {

using std::chrono::milliseconds;

// Gloo knows no "for ever"; its waits add this to a clock in nanoseconds.
constexpr milliseconds kForEver = std::chrono::hours(24 * 365);

// Gloo's device thread inherits what is blocked when it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

template <typename Combine>
void Each(void* to, const void* a, const void* b, size_t count, Combine combine) {
  const float* left = static_cast<const float*>(a);
  const float* right = static_cast<const float*>(b);
  std::transform(left, left + count, right, static_cast<float*>(to), combine);
}
void Max(void* to, const void* a, const void* b, size_t n) {
  Each(to, a, b, n, [](float x, float y) { return std::max(x, y); });
}
void Sum(void* to, const void* a, const void* b, size_t n) {
  Each(to, a, b, n, [](float x, float y) { return x + y; });
}

// The job's store behind Gloo's interface. A failed call becomes an exception, as Gloo expects of a store.
class JobStore : public gloo::rendezvous::Store {
 public:
  JobStore(const gyro_gloo_store& store, std::string prefix, uint32_t wait_ms)
      : store_(store), prefix_(std::move(prefix)), wait_ms_(wait_ms) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
    if (store_.set(store_.context, (prefix_ + key).c_str(), bytes, data.size()) != 0) Fail("set", key);
  }
  std::vector<char> get(const std::string& key) override { return Read(key, wait_ms_); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, milliseconds(wait_ms_)); }
  void wait(const std::vector<std::string>& keys, const milliseconds& limit) override {
    for (const std::string& key : keys) Read(key, static_cast<uint32_t>(limit.count()));
  }

 private:
  std::vector<char> Read(const std::string& key, uint32_t wait_ms) {
    std::vector<char> value(4096);
    for (;;) {
      size_t size = 0;
      auto* bytes = reinterpret_cast<uint8_t*>(value.data());
      if (store_.get(store_.context, (prefix_ + key).c_str(), bytes, value.size(), &size, wait_ms) != 0)
        Fail("get", key);
      const bool whole = size <= value.size();
      value.resize(size);
      if (whole) return value;
    }
  }
  [[noreturn]] void Fail(const char* call, const std::string& key) const {
    std::rethrow_exception(std::make_exception_ptr(
        std::runtime_error(std::string("the job's store failed to ") + call + " " + prefix_ + key)));
  }

  const gyro_gloo_store store_;
  const std::string prefix_;
  const uint32_t wait_ms_;
};

// Where ranks of one launch meet in a directory. Each leaves a mark: one that is there already is another launch's.
std::string ClaimPlace(const gyro_gloo_options& options, std::filesystem::path* place) {
  *place = std::filesystem::path(options.directory) / (std::string("gyrostat-gloo-") + options.prefix);
  std::error_code error;
  std::filesystem::create_directory(*place, error);
  if (error) return place->string() + " cannot be made: " + error.message();
  const std::filesystem::path mark = *place / ("rank-" + std::to_string(options.rank));
  const int file = open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) {
    close(file);
    return "";
  }
  if (errno == EEXIST)
    return mark.string() + " is there already: wanted a prefix that no other launch has used, and each rank once";
  return mark.string() + " cannot be made: " + std::strerror(errno);
}

}  // namespace

struct GlooMesh::Parts {
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::rendezvous::Context> context;
};

GlooMesh::GlooMesh(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
GlooMesh::~GlooMesh() {
  try {
    parts_.reset();
  } catch (const std::exception&) {  // It is gone all the same.
    parts_.release();
  }
}

std::shared_ptr<GlooMesh> GlooMesh::Connect(const gyro_gloo_options& options, std::string* error) {
  const SignalsBlocked blocked;
  try {
    std::filesystem::path place;
    std::unique_ptr<gloo::rendezvous::Store> store;
    if (options.store != nullptr) {
      store = std::make_unique<JobStore>(*options.store, std::string(options.prefix) + "/", options.connect_timeout_ms);
    } else {
      *error = ClaimPlace(options, &place);
      if (!error->empty()) return nullptr;
      store = std::make_unique<gloo::rendezvous::FileStore>(place.string());
    }
    gloo::transport::tcp::attr where;
    if (options.address != nullptr) where.hostname = options.address;
    else if (options.interface_name != nullptr) where.iface = options.interface_name;
    else where.hostname = "127.0.0.1";
    auto parts = std::make_unique<Parts>();
    parts->device = gloo::transport::tcp::CreateDevice(where);
    parts->context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(options.rank),
                                                                 static_cast<int>(options.size));
    parts->context->setTimeout(milliseconds(options.connect_timeout_ms));
    parts->context->connectFullMesh(*store, parts->device);
    std::shared_ptr<GlooMesh> mesh(new GlooMesh(std::move(parts)));
    // Once this has come back everybody has read what everybody wrote.
    float present = 1;
    *error = mesh->Reduce(Reduction::kSum, &present, 1);
    if (!error->empty()) return nullptr;
    std::error_code ignored;
    if (!place.empty() && options.rank == 0) std::filesystem::remove_all(place, ignored);
    return mesh;
  } catch (const std::exception& failure) {
    *error = "rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
             " did not meet the others: " + failure.what();
    return nullptr;
  }
}

std::string GlooMesh::Reduce(Reduction kind, float* lanes, size_t count) {
  std::string why;
  try {
    gloo::AllreduceOptions options(parts_->context);
    options.setOutput(lanes, count);
    options.setReduceFunction(kind == Reduction::kMax ? &Max : &Sum);
    options.setTimeout(kForEver);
    gloo::allreduce(options);
    return "";
  } catch (const std::exception& failure) {
    why = std::string("an all-reduce failed: ") + failure.what();
  }
  try {
    parts_->context->closeConnections();
  } catch (const std::exception& failure) {
    why += "; closing the connections failed as well: " + std::string(failure.what());
  }
  return why;
}

}  // namespace gyrostat::collectives
