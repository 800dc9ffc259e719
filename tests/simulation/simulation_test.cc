// What CI asks of the simulator: 2,000 seeds without a violation, and every broken rule noticed.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "simulation/job.h"
#include "support/paths.h"

namespace gyrostat::simulation {
namespace {

constexpr uint64_t kSeedsPerCase = 250;
// A broken rule must show within so many seeds.
constexpr uint64_t kSeedsPerMutant = 200;

class Blocks : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Blocks, KeepTheInvariants) {
  Tally all;
  for (uint64_t seed = GetParam() * kSeedsPerCase; seed < (GetParam() + 1) * kSeedsPerCase; ++seed) {
    Job job(Plan(seed), Mutant::kNone, nullptr);
    EXPECT_EQ(job.Run(), "") << "replay it: gyrostat-simulate --seed " << seed << " --trace";
    all.Add(job.tally());
  }
  // Nothing was proved where nothing happened.
  EXPECT_GT(all.applied, 100u) << all.ToString();
  EXPECT_GT(all.local, 10u) << all.ToString();
  EXPECT_GT(all.held, 10u) << all.ToString();
  EXPECT_GT(all.refused, 10u) << all.ToString();
  EXPECT_GT(all.foreign, 0u) << all.ToString();
  EXPECT_GT(all.registers, 10u) << all.ToString();
  EXPECT_GT(all.unsure, 0u) << all.ToString();
  EXPECT_GT(all.acks_applied, 100u) << all.ToString();
  EXPECT_GT(all.at_the_edge, 10u) << all.ToString();
  EXPECT_GT(all.acks_expired, 10u) << all.ToString();
  EXPECT_GT(all.joins, 100u) << all.ToString();
  EXPECT_GT(all.newcomers, 100u) << all.ToString();
  EXPECT_GT(all.behind, 10u) << all.ToString();
  EXPECT_GT(all.joined_unsure, 10u) << all.ToString();
  EXPECT_GT(all.sums, 1000u) << all.ToString();
  EXPECT_GT(all.reports, all.sums) << all.ToString();
  EXPECT_GT(all.odd_reports, 100u) << all.ToString();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Blocks, ::testing::Range(uint64_t{0}, uint64_t{8}));

TEST(Seeds, ThatOnceFoundSomethingAreClean) {
  std::ifstream file(std::string(testing::kSourceDir) + "/tests/simulation/seeds.txt");
  size_t seeds = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    EXPECT_EQ(Job(Plan(std::stoull(line)), Mutant::kNone, nullptr).Run(), "") << line;
    ++seeds;
  }
  EXPECT_GE(seeds, 3u);
}

class Mutants : public ::testing::TestWithParam<Mutant> {};

TEST_P(Mutants, AreCaught) {
  std::string found;
  for (uint64_t seed = 0; seed < kSeedsPerMutant && found.empty(); ++seed)
    found = Job(Plan(seed), GetParam(), nullptr).Run();
  EXPECT_NE(found, "") << Name(GetParam()) << " survived " << kSeedsPerMutant << " seeds";
}

INSTANTIATE_TEST_SUITE_P(Each, Mutants, ::testing::ValuesIn(AllMutants()), [](const auto& each) {
  std::string name = Name(each.param);
  std::erase(name, '-');
  return name;
});

TEST(Simulation, ASeedIsAWholeHistory) {
  for (const uint64_t seed : {3u, 17u, 40u}) {
    std::string first, second;
    Job(Plan(seed), Mutant::kNone, &first).Run();
    Job(Plan(seed), Mutant::kNone, &second).Run();
    EXPECT_FALSE(first.empty());
    EXPECT_EQ(first, second);
  }
}

}  // namespace
}  // namespace gyrostat::simulation
