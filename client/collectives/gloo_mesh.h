// Gloo as the client needs it: a connection to every other rank, and an all-reduce over all of them. The only file that
// knows Gloo. Its exceptions end here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/collectives/round_worker.h"
#include "gyrostat/gloo.h"

namespace gyrostat::collectives {

class GlooMesh {
 public:
  // Meets the other ranks; blocks. Null and a reason where that failed. `options` has been checked.
  static std::shared_ptr<GlooMesh> Connect(const gyro_gloo_options& options, std::string* error);
  ~GlooMesh();

  // Blocks until all ranks have called it with the same kind and count. "" or what went wrong; then all connections of
  // this rank are closed, so that nobody waits for it in vain. All ranks get the same bits.
  std::string Reduce(Reduction kind, float* lanes, size_t count);

 private:
  struct Parts;
  explicit GlooMesh(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace gyrostat::collectives
