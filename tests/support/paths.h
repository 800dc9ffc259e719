// Where the sources and the build lie. Values of one object file, so that all others compile alike in every checkout.
#pragma once

namespace gyrostat::testing {

extern const char* const kSourceDir;
extern const char* const kFakeTransport;  // The library to give to gyro_options.transport.
extern const char* const kFakeNccl;       // And to gyro_nccl_libraries, as both.

}  // namespace gyrostat::testing
