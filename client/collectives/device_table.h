// What the library uses of NCCL and of the CUDA runtime: a table of functions that is filled at run time, so that
// nothing of either is needed to build, link or test. There is no call in it that waits for a device or a stream.
//
// The types are those of the C ABIs as far as they are stable: handles as void*, enumerations as int. Where nccl.h and
// cuda_runtime.h are found, device_table_check.cc compares each with the real one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gyrostat/nccl.h"

namespace gyrostat::collectives {

inline constexpr int kCudaSuccess = 0, kCudaNotReady = 600;
inline constexpr int kCudaHostToDevice = 1, kCudaDeviceToHost = 2;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr int kCudaCaptureRelaxed = 2;
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
inline constexpr int kNcclFloat32 = 7, kNcclSum = 0, kNcclMax = 2;

struct DeviceTable {
  int (*malloc_device)(void** pointer, size_t size);
  int (*free_device)(void* pointer);
  int (*malloc_host)(void** pointer, size_t size, unsigned flags);
  int (*free_host)(void* pointer);
  int (*copy)(void* to, const void* from, size_t size, int kind, void* stream);
  int (*event_create)(void** event, unsigned flags);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event);
  int (*exchange_capture_mode)(int* mode);
  int (*event_destroy)(void* event);
  const char* (*cuda_error)(int code);

  int (*unique_id)(gyro_nccl_id* id);
  int (*init_rank)(void** communicator, int size, gyro_nccl_id id, int rank);
  int (*destroy)(void* communicator);
  int (*abort)(void* communicator);
  int (*async_error)(void* communicator, int* code);
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int operation, void* communicator,
                    void* stream);
  int (*group_start)();
  int (*group_end)();
  const char* (*nccl_error)(int code);
};

// Loads both libraries for good. Null and a reason where one, or a function of it, is not there. Thread-safe.
std::unique_ptr<DeviceTable> LoadDeviceTable(const gyro_nccl_libraries* libraries, std::string* error);

}  // namespace gyrostat::collectives
