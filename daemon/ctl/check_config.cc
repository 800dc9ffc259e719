#include "ctl/check_config.h"

#include <sstream>
#include <vector>

#include "ctl/json.h"
#include "ctl/text.h"

namespace gyrostat::ctl {

int CheckConfig(const Request& request, const Console& console, const ConfigCheck& check) {
  const absl::Status status = check(request.file);
  std::vector<std::string> errors;
  std::istringstream lines{std::string(status.message())};
  for (std::string line; std::getline(lines, line);) errors.push_back(line);
  if (!status.ok() && errors.empty()) errors.push_back(request.file + ": " + status.ToString());
  if (request.json) {
    console.out << JsonConfig(request.file, errors) << "\n";
  } else if (status.ok()) {
    console.out << Escape(request.file) << " is a good configuration.\n";
  } else {
    for (const std::string& each : errors) console.err << Escape(each) << "\n";
  }
  return status.ok() ? kDone : kRefused;
}

}  // namespace gyrostat::ctl
