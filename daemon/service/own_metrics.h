// Which numbers of the rooms are published, under which name: the one place that knows both probes and metrics.
#pragma once

#include <string>
#include <vector>

#include "engine/probe.h"
#include "notify/probe.h"
#include "rpc/probe.h"
#include "service/probe.h"
#include "store/probe.h"
#include "telemetry/metrics.h"
#include "telemetry/probe.h"
#include "web/probe.h"

namespace gyrostat::service {

struct Probes {
  const engine::Probe& engine;
  const rpc::Probe& rpc;
  const store::Probe& store;
  const telemetry::Probe& telemetry;
  const web::Probe& web;
  const telemetry::RemoteProbe& remote;
  const notify::Probe& notify;
  const Probe& service;
};

// Points into the probes.
std::vector<telemetry::OwnMetric> OwnMetrics(const Probes& probes);

// What --list-metrics prints.
std::string ListAllMetrics();

}  // namespace gyrostat::service
