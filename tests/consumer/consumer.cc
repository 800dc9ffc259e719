// The least that somebody else's program can be.
#include <cstdio>
#include <gyrostat/gyrostat.hpp>

int main() {
  gyrostat::Options options;
  options.run = "consumer";
  gyrostat::Client client(options);
  client.Step(1, [](gyrostat::Report& report) { report.Scalar("loss", 2.5); });
  std::printf("%s: %s\n", gyro_version(), client.active() ? "active" : "inactive");
}
