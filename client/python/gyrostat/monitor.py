"""What a training loop holds: every call guarded, every call free where there is nothing to watch."""

import weakref

from gyrostat.trouble import Fuse


class Monitor:
    """What `gyrostat.watch` returns. Training thread only. No method raises or blocks; `close` takes at most 250 ms."""

    def __init__(self, session=None, fuse=None):
        """Without a session: inert, every call returns at once."""
        self._session = session
        self._fuse = fuse or Fuse()
        self._kept_state = None
        # Closes at garbage collection and at interpreter exit, should nobody call close.
        self._finalizer = weakref.finalize(self, session.close) if session else None

    @property
    def active(self):
        """Whether this rank takes part: its steps are reported, or agreed on."""
        return self._session is not None and not self._fuse.blown

    @property
    def status(self):
        """inactive, watching (nothing may be changed), acting (what `allow` names may be), held (somebody gave a reason
        to apply nothing), or unsure: of several ranks, this one cannot know what the others did. Nothing is applied
        then, until weights and state were made equal on all ranks with load_state_dict, or the job is restarted.
        """
        return self._session.status if self.active else "inactive"

    def step(self, loss=None, step=None, grad_norm=None, tokens=None, **scalars):
        """One boundary: call after optimizer.step() and scheduler.step(), before the next forward.

        loss: nats per token, a tensor or a number. step: the trainer's step number; None: counted from start_step.
        grad_norm: global L2 before clipping, where the trainer knows it better. tokens: of this step, a user scalar.
        Further keywords: scalar signals by their names (log_z, loss_scale, …); others are user scalars (at most 64).
        """
        if self.active:
            try:
                self._session.step(loss, step, grad_norm, tokens, scalars)
                return
            except Exception as error:
                self._fuse.blow(error)
        if self._session is not None:
            with self._fuse.guard():
                self._session.keep_pace()

    def record(self, signal, values):
        """Gives an array signal of the step that the next step() ends, where the client does not measure it itself:
        attn_out_ms, mlp_out_ms, ln_input_ms, update_rms, param_norm, attn_entropy, … (client/README.md, "What to
        record").

        values: a number for each layer that is on this rank, in their order; a list or a 1-D tensor, with None where
        nothing was measured. The last call of a step wins.
        """
        if self.active:
            try:
                self._session.record(signal, values)
            except Exception as error:
                self._fuse.blow(error)

    def attention(self, layer, q, k, scale=None, causal=False, mask=None, bias=None):
        """Measures a layer's attention by hand, where it is computed by a kernel that cannot be seen into.

        Call in the forward, with what enters the kernel; arguments as gyrostat.max_logits. Ignored without gradients
        (evaluation). `layer` counts from 0 in the whole model.
        """
        if self.active:
            try:
                self._session.attention(layer, q, k, scale, causal, mask, bias)
            except Exception as error:
                self._fuse.blow(error)

    def attention_max(self, layer, maxima, kind="exact"):
        """Records [H] maxima of a layer that the kernel itself returned, or gyrostat.max_logits_from_lse made.

        kind: exact, lse_upper, sampled_lower or norm_product; a clip may come only from the first two.
        """
        if self.active:
            try:
                self._session.attention_max(layer, maxima, kind)
            except Exception as error:
                self._fuse.blow(error)

    def hold(self, reason):
        """The kill switch: from the next boundary on nothing is applied (of several ranks, on none), until release().
        Watching goes on."""
        if self.active:
            with self._fuse.guard():
                self._session.hold("person", str(reason) or "mon.hold() was called")

    def release(self):
        """Takes hold() back. What holds for another reason goes on holding."""
        if self.active:
            with self._fuse.guard():
                self._session.hold("person", "")

    def requests(self):
        """What was asked of the loop since the last call, oldest first: (kind, reason, step) with kind checkpoint,
        rollback or halt. Each comes once, on all ranks at the same step. Call after step().
        """
        if self.active:
            with self._fuse.guard():
                return self._session.requests()
        return []

    def reset(self):
        """The weights got another history in this process (rollback, re-initialisation): open orders die."""
        if self.active:
            with self._fuse.guard():
                self._session.reset()

    def state_dict(self):
        """What belongs in the checkpoint: plain strings and numbers. Save after step(). Works when inert."""
        if self.active:
            with self._fuse.guard():
                return self._session.state_dict()
        return self._kept_state or {"format": 1, "client": "", "next_step": 0}

    def load_state_dict(self, state):
        """Restores what state_dict gave, in a new epoch. A strange state is said once and not used."""
        self._kept_state = state
        if self.active:
            with self._fuse.guard():
                self._session.load_state_dict(state)

    def close(self):
        """Flushes for at most 250 ms and lets go of the model. Further calls do nothing."""
        if self._finalizer is not None and self._finalizer.alive:
            if not self._fuse.blown:
                self._kept_state = self.state_dict()
            with self._fuse.guard():
                self._finalizer()
        self._session = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()
