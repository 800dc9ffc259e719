// Numbers and their names in a line of prose: "step: 3 | lm loss: 1.2E+01 | lr 3e-4 | mfu 35.6%", "'loss': 2.5".
#pragma once

#include <string_view>
#include <vector>

#include "logs/record.h"

namespace gyrostat::logs {

struct KeyValue {
  std::string_view key;  // One or more words: "grad norm".
  double value = 0;
};

// In the order of the line. A name is what stands between the last number or punctuation and a number; a colon, an
// equals sign, quotes or an opening bracket may stand between the two. `*out` is overwritten.
void FindKeyValues(std::string_view line, std::vector<KeyValue>* out);

// All of them as fields of `record`.
void AddKeyValues(std::string_view line, std::vector<KeyValue>* scratch, Record* record);

}  // namespace gyrostat::logs
