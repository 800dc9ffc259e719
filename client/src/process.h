// What the process around us does: forks and exits. Both must find us harmless.
//
// Fork: gRPC 1.51 does not survive one. A child that stays away from it is safe, one that makes a new channel hangs.
// So a flag, set in the child by pthread_atfork, makes every call of ours answer GYRO_INACTIVE there, also a new
// gyro_open. Exit: static destructors run while the sender still does. A handler asks it to stop touching anything
// and gives it a few milliseconds to say that it has; it never joins. A process that leaves by _exit runs none of
// this and needs none.
#pragma once

namespace gyrostat::client {

// Registers both handlers, once per process; after the transport was loaded, so that exit runs ours first.
void GuardProcess();

// True in a child forked after GuardProcess.
bool InForkedChild();

// True once exit has begun: senders park, closing waits for nobody.
bool Exiting();

// A running sender announces itself, so that exit knows for whom to wait.
void SenderStarted();
// Says that the calling sender thread will not touch anything any more; call it when the thread ends or parks.
void SenderStopped();
// Parks the calling sender thread for ever. It holds no lock and owns nothing that anybody waits for.
[[noreturn]] void ParkSender();

}  // namespace gyrostat::client
