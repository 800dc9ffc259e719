"""Of ranks that agree, the leader's report of a step leaves within the next one, as soon as the ranks' round is there:
what the daemon orders is then applied a boundary earlier (client/README.md, "How ranks agree").

Whatever of ours runs within a step asks: `if early.due: early.ask()`. Where this rank does not lead, or no round is
under way, that is all it costs.
"""

import os
import threading


class Early:
    """Of one monitor."""

    def __init__(self):
        self.due = False
        self._client = self._collective = None
        self._of = None  # (process, thread) of the training loop.

    def lead(self, client, collective):
        """This rank is the leader, with this client and its collective."""
        self._client, self._collective = client, collective

    def begun(self):
        """A boundary has passed, and its round is under way. On the training thread."""
        self._of = os.getpid(), threading.get_ident()
        self.due = self._client is not None

    def over(self):
        """The round is waited for now, or never."""
        self.due = False

    def ask(self):
        """Never raises, never blocks. Only while `due`."""
        # Forwards are recomputed in threads of autograd, and data-parallel copies run in threads of their own.
        if self._of == (os.getpid(), threading.get_ident()) and self._collective.done():
            self.due = False
            self._client.progress()


NEVER = Early()
