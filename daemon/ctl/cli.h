// The command line: words in, a Request or a text to print and an exit code out. cli.cc is the only file that knows
// CLI11.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctl/request.h"

namespace gyrostat::ctl {

// What the environment says where the command line does not.
struct Environment {
  std::string address;  // $GYROSTAT_ADDRESS
  std::string user;     // $USER, else $LOGNAME: the author of approvals.
};

struct Parsed {
  std::optional<Request> request;  // Nothing: print `out` and `err` and exit with `exit_code`.
  int exit_code = kDone;
  std::string out, err;
};

// `args` without the program's name.
Parsed Parse(const std::vector<std::string>& args, const Environment& environment);

// A bash script that completes commands, options and modes; made from the same table as the parser, so it cannot drift.
std::string BashCompletion();

// A list of numbers as --logits takes them: "12.5,-3,nan,inf". Nothing when a word is no number; `*error` names it.
std::optional<std::vector<double>> ParseNumbers(const std::string& text, std::string* error);

}  // namespace gyrostat::ctl
