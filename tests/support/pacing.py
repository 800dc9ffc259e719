"""Jobs that wait at the end of each step until the daemon has judged what they reported: an order's delay is then a
number of steps, on however busy a machine.

    wait_for_answer(monitor)                          after monitor.step()
    python3 -m pacing PROGRAM ARGUMENT…               a program in Python whose every monitor does so
    env={**os.environ, **pacing.ENVIRONMENT}          a program in C or C++ (pacing.cc)
"""
import runpy
import sys

import gyrostatd

ENVIRONMENT = {"LD_PRELOAD": str((gyrostatd.BIN.parent / "lib" / "libgyrostat_pacing.so").resolve())}


def _wait(client, held=0):
    def answered():
        stats = client.stats()
        return stats.reports_acked + stats.dropped_unacked >= stats.reports_total - held

    gyrostatd.wait_until(answered, "the daemon's answer", pause_s=0.001)


def wait_for_answer(monitor, held=0):
    """held: reports that have not left yet."""
    if monitor.active:
        _wait(monitor._session._client, held)


def main(program, *arguments):
    from gyrostat import _abi

    end = _abi.Client.end

    def end_and_wait(client):
        status = end(client)
        _wait(client)
        return status

    _abi.Client.end = end_and_wait
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
