// gyrostat-scenario FILE...   plays scenarios and compares what is said with what they expect. Exit 1 on a difference.
// gyrostat-scenario --print FILE...   prints what is said, as the `expect` lines that would expect it.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "scenario/expectations.h"
#include "scenario/player.h"
#include "scenario/script.h"

namespace {

using gyrostat::scenario::Said;

bool Run(const std::string& path, bool print) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    return false;
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  gyrostat::scenario::Script script;
  std::string error = gyrostat::scenario::Parse(text, &script);
  std::vector<Said> said;
  if (error.empty()) said = gyrostat::scenario::Player(script).Play(&error);
  if (!error.empty()) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), error.c_str());
    return false;
  }
  if (print) {
    for (const Said& each : said) std::printf("%s\n", each.Line().c_str());
    return true;
  }
  const std::vector<std::string> differences = gyrostat::scenario::Compare(script.expectations, said);
  for (const std::string& difference : differences) std::fprintf(stderr, "%s: %s\n", path.c_str(), difference.c_str());
  return differences.empty();
}

}  // namespace

int main(int count, char** arguments) {
  bool good = count > 1, print = false;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--print")
      print = true;
    else
      good = Run(argument, print) && good;
  }
  if (count <= 1) std::fprintf(stderr, "usage: gyrostat-scenario [--print] FILE...\n");
  return good ? 0 : count > 1 ? 1 : 2;
}
