#include "service/own_metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "support/paths.h"

namespace gyrostat::service {
namespace {

// The names that dashboards and alerts may use: a change here is a change for users.
TEST(OwnMetrics, AndThoseOfRunsAreTheGoldenList) {
  const std::string path = std::string(testing::kSourceDir) + "/tests/golden/metrics.txt";
  if (std::getenv("GYROSTAT_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << ListAllMetrics();
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(ListAllMetrics(), golden.str()) << "GYROSTAT_UPDATE_GOLDEN=1 rewrites it";
}

TEST(OwnMetrics, AreNamedAfterTheirRoomAndEndByTheirType) {
  const engine::Probe engine;
  const rpc::Probe rpc;
  const store::Probe store;
  const telemetry::Probe telemetry;
  const telemetry::RemoteProbe remote;
  const notify::Probe notify;
  const web::Probe web;
  const Probe service;
  std::set<std::string> seen;
  for (const telemetry::OwnMetric& metric : OwnMetrics({engine, rpc, store, telemetry, web, remote, notify, service})) {
    const bool counter = std::holds_alternative<const base::Counter*>(metric.value);
    const std::string total = "_total";
    const bool ends = metric.name.size() > total.size() &&
                      metric.name.compare(metric.name.size() - total.size(), total.size(), total) == 0;
    EXPECT_EQ(counter, ends) << metric.name;
    EXPECT_TRUE(seen.insert(metric.name).second) << metric.name << " is there twice";
    bool named = false;
    for (const char* room : {"engine", "rpc", "store", "telemetry", "notify", "web", "config"})
      named |= metric.name.rfind(std::string("gyrostat_") + room + "_", 0) == 0;
    EXPECT_TRUE(named) << metric.name;
  }
}

}  // namespace
}  // namespace gyrostat::service
