#include "engine/views.h"

namespace gyrostat::engine {

const char* Token(RunLife v) {
  switch (v) {
    case RunLife::kLive: return "live";
    case RunLife::kSilent: return "silent";
    case RunLife::kEnded: return "ended";
  }
  return "";
}

}  // namespace gyrostat::engine
