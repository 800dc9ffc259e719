// gyrostat-simulate --seeds A..B [--mutant NAME] | --seed N [--mutant NAME] [--trace]
// Runs the simulator by hand. Exit code 0: every seed was clean (with a mutant: it was caught); 1: not; 2: usage.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simulation/job.h"

namespace {

using gyrostat::simulation::Job;
using gyrostat::simulation::Mutant;
using gyrostat::simulation::Plan;
using gyrostat::simulation::Tally;

int Usage() {
  std::fprintf(stderr, "usage: gyrostat-simulate --seeds A..B [--mutant NAME]\n"
                       "       gyrostat-simulate --seed N [--mutant NAME] [--trace]\nmutants:");
  for (const Mutant mutant : gyrostat::simulation::AllMutants())
    std::fprintf(stderr, " %s", gyrostat::simulation::Name(mutant));
  std::fprintf(stderr, "\n");
  return 2;
}

struct Arguments {
  uint64_t first = 0, last = 0;
  Mutant mutant = Mutant::kNone;
  bool trace = false, given = false;
};

bool Read(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--trace") {
      out->trace = true;
      continue;
    }
    if (++i == argc) return false;
    char* end = nullptr;
    if (name == "--mutant") {
      for (const Mutant mutant : gyrostat::simulation::AllMutants())
        if (std::strcmp(argv[i], gyrostat::simulation::Name(mutant)) == 0) out->mutant = mutant;
      if (out->mutant == Mutant::kNone) return false;
    } else if (name == "--seed" || name == "--seeds") {
      out->first = out->last = std::strtoull(argv[i], &end, 10);
      if (name == "--seeds" && std::strncmp(end, "..", 2) == 0) out->last = std::strtoull(end + 2, &end, 10);
      out->given = *end == '\0' && out->last >= out->first;
    } else {
      return false;
    }
  }
  return out->given;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Read(argc, argv, &arguments)) return Usage();
  Tally all;
  uint64_t failures = 0, seeds = 0;
  for (uint64_t seed = arguments.first; seed <= arguments.last; ++seed, ++seeds) {
    const Plan plan(seed);
    std::string trace;
    Job job(plan, arguments.mutant, arguments.trace ? &trace : nullptr);
    const std::string violation = job.Run();
    all.Add(job.tally());
    if (arguments.trace) std::printf("%s\n%s", plan.ToString().c_str(), trace.c_str());
    if (!violation.empty() && ++failures <= 10)
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.c_str());
    if (seeds % 1000 == 999) {
      std::printf("%llu seeds, %llu with a violation\n", static_cast<unsigned long long>(seeds + 1),
                  static_cast<unsigned long long>(failures));
      std::fflush(stdout);
    }
  }
  std::printf("%llu seeds, %llu with a violation: %s\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(failures), all.ToString().c_str());
  const bool wanted = arguments.mutant != Mutant::kNone;
  return (failures > 0) == wanted ? 0 : 1;
}
