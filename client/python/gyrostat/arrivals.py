"""Do the reports reach a daemon? Looked at now and then, and said when it changes.

The library tells it in counters and in one sentence, its newest trouble (gyro_stats). A look costs microseconds and
waits for nothing. The clock decides only when something is said.
"""

import logging
import os
import time

from gyrostat.arguments import shown

_LOOK_EVERY_S = 1.0
_PATIENCE_S = 5.0  # A daemon acknowledges in milliseconds, and a small one is back from a restart within seconds.
_AGAIN_AFTER_S = 600.0  # A daemon that comes and goes must not fill the log.
_POLL_S = 0.005
# A refused stream ends with the daemon's own sentence behind one of these. Everything else: there is no daemon, or
# something else.
_REFUSED = ("resource exhausted: ", "invalid argument: ", "failed precondition: ", "permission denied: ",
            "unauthenticated: ", "aborted: ")


class Arrivals:
    """Of one client. Training thread only."""

    def __init__(self, client, options, fuse, now=time.monotonic, sleep=time.sleep):
        """options: the client's own, for `run` and `address`. now() → seconds, for the throttle only."""
        self._client = client
        self._run = shown(options["run"] or os.environ.get("GYROSTAT_RUN") or "run")
        self._address = options["address"]
        self._fuse = fuse
        self._now = now
        self._sleep = sleep
        self._next_look = self._moved = now()
        self._acked = 0
        self._stale = ""  # The newest trouble when reports last moved: it is over.
        self._of_arguments = ""  # The newest sentence that is about a value, not about the connection.
        self._told = set()  # Kinds of reason that were said in this trouble.
        self._trouble_from = None
        self._quiet_until = self._next_look

    def of_arguments(self, sentence):
        """last_error is this, and it is about an argument."""
        self._of_arguments = sentence

    def look(self):
        """At every step, before it hands over its report. Says what has changed."""
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY_S
        stats = self._client.stats()
        waiting = stats.reports_total - stats.reports_acked - stats.dropped_unacked
        if stats.reports_acked > self._acked:
            self._arrived(stats, now)
        elif waiting == 0:
            self._moved = now
        elif now - self._moved >= _PATIENCE_S:
            self._stuck(stats, waiting, now)

    def _arrived(self, stats, now):
        if self._acked == 0:
            self._say(f"reports of run {self._run} arrive at gyrostatd, {self._address}", logging.INFO)
        elif self._told:
            self._say(f"reports of run {self._run} arrive at {self._address} again, after "
                      f"{now - self._trouble_from:.0f} s; {stats.dropped_unacked + stats.dropped_hot} were lost since "
                      "the start", logging.INFO)
        if self._told:
            self._quiet_until = now + _AGAIN_AFTER_S
            self._told.clear()
        self._acked, self._moved = stats.reports_acked, now
        self._stale = _text(stats)

    def _stuck(self, stats, waiting, now):
        reason = self._reason(stats)
        kind = reason.partition(":")[0]
        if kind in self._told or now < self._quiet_until:
            return
        if not self._told:
            self._trouble_from = self._moved
        self._told.add(kind)
        counts = f"{waiting} reports wait, {stats.dropped_unacked + stats.dropped_hot} were lost"
        if reason.startswith(_REFUSED):
            self._say(f"the gyrostatd at {self._address} refuses run {self._run}: {reason}. {counts}; training goes on")
        else:
            self._say(f"no report of run {self._run} was acknowledged for {now - self._moved:.0f} s, wanted gyrostatd "
                      f"(the grpc= of its ready line) at {self._address}: {reason}. {counts}; training goes on")

    def _say(self, sentence, level=logging.WARNING):
        """What is said twice happened twice, minutes apart."""
        self._fuse.say(sentence, level, about=(self, self._now()))

    def _reason(self, stats):
        text = _text(stats)
        if text == self._of_arguments:
            text = ""
        if stats.connected and text == self._stale:
            return "it takes the reports, but acknowledges none"
        return text or "nothing has answered so far"

    def finish(self, budget_ms):
        """Before the client is closed: says so if nothing ever arrived. A first report may be on its way: waits for
        its acknowledgement for at most the budget. Returns what is left of it, in ms."""
        end = self._now() + budget_ms / 1000
        stats = self._client.stats()
        while stats.reports_total > stats.reports_acked == 0 and self._now() < end:
            if not stats.connected and self._reason(stats) == _text(stats):
                break  # Nobody is there.
            self._sleep(_POLL_S)
            stats = self._client.stats()
        if stats.reports_acked > self._acked:
            self._arrived(stats, self._now())
        elif stats.reports_total > stats.reports_acked == 0:
            self._say(f"closing run {self._run}: none of its {stats.reports_total} reports was acknowledged by a "
                      f"gyrostatd at {self._address}: {self._reason(stats)}")
        return max(0, int(1000 * (end - self._now())))


def _text(stats):
    return stats.last_error.decode(errors="replace")
