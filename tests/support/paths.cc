#include "support/paths.h"

namespace gyrostat::testing {

const char* const kSourceDir = GYROSTAT_SOURCE_DIR;
const char* const kFakeTransport = GYROSTAT_BINARY_DIR "/lib/libgyrostat_fake_transport.so";
const char* const kFakeNccl = GYROSTAT_BINARY_DIR "/lib/libgyrostat_fake_nccl.so";

}  // namespace gyrostat::testing
