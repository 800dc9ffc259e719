// Chunks as they were written before schema 4: "GYC1", without checksums and times of arrival.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace gyrostat::testing {

// From today's layout (store/chunk.h) to that of before, bit for bit: head of 12 bytes, sections of 8.
inline std::string AsOldChunk(const std::string& chunk) {
  uint32_t sections = 0;
  std::memcpy(&sections, chunk.data() + 8, sizeof(sections));
  std::string old = "GYC1" + chunk.substr(4, 8);
  size_t data = 16 + size_t{sections} * 12;
  std::string rest;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < sections; ++i) {
    uint32_t name = 0, bytes = 0;
    std::memcpy(&name, chunk.data() + 16 + size_t{i} * 12, sizeof(name));
    std::memcpy(&bytes, chunk.data() + 20 + size_t{i} * 12, sizeof(bytes));
    if (name < 0x100) {  // The others are new.
      old += chunk.substr(16 + size_t{i} * 12, 8);
      rest += chunk.substr(data, bytes);
      ++kept;
    }
    data += bytes;
  }
  std::memcpy(old.data() + 8, &kept, sizeof(kept));
  return old + rest;
}

}  // namespace gyrostat::testing
