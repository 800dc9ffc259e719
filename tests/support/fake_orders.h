// The fake daemon behind the transport seam for tests in Python (tests/python/fake_daemon.py): a C ABI over FakeDaemon
// that sends orders of registers and tells what was answered. One daemon a process.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

// Before gyro_open.
void fake_start();

// Reports that have come so far.
uint64_t fake_reports();

// Orders `count` registers. `number` names the order, from 1 to 255; it expires `life` boundaries after the newest
// report. 0: there is no such kind, or no report has come.
int fake_order(uint8_t number, const char* kind, const uint32_t* ids, const float* values, const uint32_t* versions,
               size_t count, uint32_t ramp, uint64_t life);

// "NUMBER OUTCOME REASON", a line for each answer so far, cut to `size`.
void fake_answers(char* text, size_t size);

// Attempts that have said hello so far.
uint64_t fake_attempts();

// The allow-list of the newest hello.
void fake_allowed(char* text, size_t size);
}
#pragma GCC visibility pop
