// A resume that has lost what was in force: protocol.md §6.4, §7. Without its state the client's learning rate jumps up
// to what the schedule says, or alpha is as declared again. The daemon knows what was in force and sees in the hello
// that it is gone: in mode act it orders the same ray again at once, elsewhere it raises a critical finding. Alpha is
// never ordered again unasked.
#pragma once

#include "policy/measure_flow.h"

namespace gyrostat::policy {

// Another attempt or epoch begins: what was in force is remembered as such, the copies of it go. `spec` is the new
// attempt's: under another schedule nothing is missed. Its registers come with the hello.
void OpenHistory(const model::ModelSpec& spec, const ClipState& s, Measures* m);
// Whether some alpha stood elsewhere than declared.
bool HadAlpha(const Measures& m);
// The new attempt's hello; its registers stand in the mirror.
void CheckAlpha(const Desk& desk, bool had_alpha);

// The first report of a history says where the steps stand now: is the ray there, over, or lost?
void CheckRay(const Desk& desk, const model::Report& report);

// The ray is in force again, or over.
void EndRayAlarm(const Desk& desk);

}  // namespace gyrostat::policy
