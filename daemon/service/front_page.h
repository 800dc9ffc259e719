// What a person sees who opens the HTTP port without a browser, or where the page was not built: what this is, whether
// it is well, where to look next.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/views.h"

namespace gyrostat::service {

// Plain text. `not_ready_reason` is empty when all is well. Without the page it says how to get it.
std::string FrontPage(const std::string& version, const std::string& not_ready_reason,
                      const std::vector<std::shared_ptr<const engine::RunState>>& runs, bool has_page);

}  // namespace gyrostat::service
