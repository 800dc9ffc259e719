// The page, built by daemon/web/page.cmake. Where it could not be built, what stands there is a word and not packed.
#pragma once

#include "base/asset.h"

namespace gyrostat::web {

extern const base::Asset kPageHtmlGz;  // gzip.
extern const base::Asset kPageCsp;     // The Content-Security-Policy that allows just what is inside.

}  // namespace gyrostat::web
