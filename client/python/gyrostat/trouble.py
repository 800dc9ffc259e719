"""What happens when something of ours goes wrong inside somebody's training run: one log record, then silence.

Every entry from the loop into this package runs under a Fuse. An exception there never reaches the loop: it is logged
once with its traceback, and the monitor stays inactive for good.
"""

import contextlib
import logging

LOGGER = logging.getLogger("gyrostat")


class Fuse:
    """Not thread-safe by locks, and needs none: the worst race logs a sentence twice."""

    def __init__(self):
        self.blown = False
        self._said = set()
        self._on_blow = []

    def say(self, sentence, level=logging.WARNING, about=None):
        """Logs a sentence, once; nothing any more once the fuse has blown. about: only the first sentence about this
        is logged."""
        once = about or sentence
        if not self.blown and once not in self._said:
            self._said.add(once)
            LOGGER.log(level, "%s", sentence)

    def on_blow(self, callback):
        """callback() is called when the fuse blows; its own exceptions are dropped."""
        self._on_blow.append(callback)

    def blow(self, error):
        """Logs `error` once and switches everything off."""
        if self.blown:
            return
        self.blown = True
        LOGGER.error("gyrostat stopped watching after an error of its own; training goes on",
                     exc_info=(type(error), error, error.__traceback__))
        for callback in self._on_blow:
            with contextlib.suppress(Exception):
                callback()

    @contextlib.contextmanager
    def guard(self):
        """Swallows every Exception of the body and blows the fuse. Not for hot paths: costs a microsecond."""
        try:
            yield
        except Exception as error:  # The promise of this module: nothing of ours reaches the loop.
            self.blow(error)
