// What all detectors together cost per report of 128 × 128 heads, as a ratio to a memcpy of the report's floats, with
// the state of 256 runs resident: each run's report and state have left the caches when their turn comes.
//
// Both are measured in the same process in interleaved rounds by the thread's CPU time. Allocations are counted.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "detect/catalog.h"
#include "model/report.h"

namespace {

uint64_t allocations = 0;  // The program has one thread.

}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(std::max<size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace gyrostat::bench {
namespace {

using model::Signal;

constexpr uint32_t kLayers = 128, kHeads = 128;
constexpr double kGate = 20;

struct Options {
  uint32_t runs = 256, warm_up = 300, rounds = 7, steps_per_round = 4;
};

// Healthy reports: what a detector sees almost always. Noise without a generator: the same in every run.
double Noise(uint64_t step, uint64_t place) {
  const double x = std::sin(static_cast<double>(step) * 12.9898 + static_cast<double>(place) * 78.233) * 43758.5453;
  return x - std::floor(x) - 0.5;
}

void Fill(std::vector<float>* array, size_t size, double level, uint64_t step) {
  array->resize(size);
  for (size_t i = 0; i < size; ++i) (*array)[i] = static_cast<float>(level * (1 + 0.05 * Noise(step, i)));
}

void SetStep(model::Report* report, uint64_t step) {
  report->sequence = step + 1;
  report->boundary = step;
  report->step = static_cast<model::Step>(step);
  report->SetScalar(Signal::kLoss, 2.5 + 0.02 * Noise(step, 1));
  report->SetScalar(Signal::kGradNorm, 0.5 * std::exp(0.2 * Noise(step, 2)));
  report->SetScalar(Signal::kLearningRate, 3e-4);
  // Maxima that stand still would be no healthy report.
  report->MutableArray(Signal::kAttnLogitMax).front() = static_cast<float>(12 * (1 + 0.05 * Noise(step, 3)));
}

model::Report MakeReport(uint64_t seed) {
  model::Report report;
  report.attn_logit_kind = model::LogitKind::kExact;
  Fill(&report.MutableArray(Signal::kAttnLogitMax), size_t{kLayers} * kHeads, 12, seed);
  Fill(&report.MutableArray(Signal::kLayerGradNorm), kLayers, 0.04, seed);  // Together below the global norm.
  Fill(&report.MutableArray(Signal::kHiddenMs), kLayers + 1, 4, seed);
  Fill(&report.MutableArray(Signal::kHiddenAbsmax), kLayers + 1, 60, seed);
  SetStep(&report, seed);
  return report;
}

// One run: its detectors, and the report that it is about to see.
struct Job {
  std::vector<std::unique_ptr<detect::Detector>> detectors;
  model::Report report;
  std::vector<std::vector<float>> copy;  // Where the memcpy goes.
};

size_t FloatsOf(const model::Report& report) {
  size_t count = 0;
  for (int s = model::kArrayFirst; s < model::kArrayFirst + static_cast<int>(model::kArraySlots); ++s)
    count += report.Array(static_cast<Signal>(s)).size();
  return count;
}

double CpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// ns per report.
double Judge(std::vector<Job>* jobs, uint64_t first_step, uint32_t steps, std::vector<model::Finding>* found) {
  double spent = 0;
  for (uint64_t step = first_step; step < first_step + steps; ++step) {
    for (Job& job : *jobs) SetStep(&job.report, step);
    const double before = CpuNs();
    for (Job& job : *jobs)
      for (const auto& detector : job.detectors) detector->Observe(job.report, found);
    spent += CpuNs() - before;
  }
  return spent / steps / static_cast<double>(jobs->size());
}

double Copy(std::vector<Job>* jobs, uint32_t steps) {
  const double before = CpuNs();
  for (uint32_t step = 0; step < steps; ++step) {
    for (Job& job : *jobs) {
      for (size_t slot = 0; slot < job.copy.size(); ++slot) {
        const auto array = job.report.Array(static_cast<Signal>(model::kArrayFirst + static_cast<int>(slot)));
        if (!array.empty()) std::memcpy(job.copy[slot].data(), array.data(), array.size_bytes());
      }
    }
  }
  return (CpuNs() - before) / steps / static_cast<double>(jobs->size());
}

std::vector<Job> MakeJobs(uint32_t count) {
  model::ModelSpec spec;
  spec.layers = kLayers;
  spec.heads = spec.kv_heads = kHeads;
  std::vector<Job> jobs(count);
  for (uint32_t i = 0; i < count; ++i) {
    jobs[i].detectors = detect::MakeDetectors({}, spec);
    jobs[i].report = MakeReport(i);
    for (size_t slot = 0; slot < model::kArraySlots; ++slot)
      jobs[i].copy.emplace_back(jobs[i].report.Array(static_cast<Signal>(model::kArrayFirst + static_cast<int>(slot)))
                                    .size());
  }
  return jobs;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Measure(const Options& options) {
  std::vector<Job> jobs = MakeJobs(options.runs);
  std::vector<model::Finding> found;
  found.reserve(4096);
  Judge(&jobs, 0, options.warm_up, &found);
  std::vector<double> judge, copy, ratio;
  uint64_t step = options.warm_up, allocated = 0;
  for (uint32_t round = 0; round < options.rounds; ++round, step += options.steps_per_round) {
    const uint64_t before = allocations;
    const double judged = Judge(&jobs, step, options.steps_per_round, &found);
    allocated += allocations - before;
    judge.push_back(judged);
    copy.push_back(Copy(&jobs, options.steps_per_round));
    ratio.push_back(judge.back() / copy.back());
  }
  const double per_report = static_cast<double>(allocated) / options.rounds / options.steps_per_round / options.runs;
  const double result = Median(ratio);
  std::printf("CPU per report of 128 x 128 heads (%zu floats), state of %u runs resident, medians of %u rounds\n",
              FloatsOf(jobs.front().report), options.runs, options.rounds);
  std::printf("  %-28s %9.2f us\n", "memcpy of the floats", Median(copy) / 1000);
  std::printf("  %zu detectors %26.2f us   %6.2f x the memcpy   gate %.0f%s\n", jobs.front().detectors.size(),
              Median(judge) / 1000, result, kGate, result <= kGate ? "" : "   OVER THE GATE");
  std::printf("  allocations per report %17.4f      gate 0%s; findings %zu\n", per_report,
              allocated == 0 ? "" : "   OVER THE GATE", found.size());
  return result <= kGate && allocated == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gyrostat::bench

int main(int argc, char** argv) {
  gyrostat::bench::Options options;
  CLI::App app{"Measures what judging a report costs. Exit code: 0 within the gates, 1 over one.", "bench_detect"};
  app.add_option("--runs", options.runs, "Runs whose state is resident")->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return gyrostat::bench::Measure(options);
}
