// A file that is part of the program: gyrostat_embed (CMakeLists.txt) puts it there when the program is built.
#pragma once

#include <string_view>

namespace gyrostat::base {

struct Asset {
  std::string_view bytes;
  std::string_view csp_hash;  // "sha256-…", by which a Content-Security-Policy allows it inline.
};

}  // namespace gyrostat::base
