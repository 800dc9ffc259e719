"""An active monitor: reports at each boundary, then applies what was ordered."""

import functools
import logging
import os

import torch

from gyrostat import _abi, attention
from gyrostat.arguments import shown, whole_number
from gyrostat.arrivals import Arrivals
from gyrostat.bindings import Bindings
from gyrostat.report import Report
from gyrostat.whole import whole

_ORDERS_MAX = 64  # Per boundary; more than the library ever holds.
_PASSED, _TO_BEGIN, _TO_END, _TO_POLL = range(4)  # How far the newest boundary has come.


class Session:
    """An active monitor's parts. Methods may raise: the Monitor guards them."""

    def __init__(self, fuse, opener, taps, lasting, probes, hidden, gradients, actuator, interventions, start_step,
                 early):
        """opener: joining.Alone or Together, asked now and at the first step: which of them knows enough about the
        weights. taps go when watching ends; lasting: what stays in place until the monitor is closed.
        """
        self._fuse = fuse
        self._opener = opener
        self._client = self._arrivals = self._collective = self._layout = None
        self._stage = _PASSED
        self._unsure = False
        self._loads = 0  # Epochs that were begun here.
        self._boundary = 0
        self._holds = {}  # Why nothing may be applied: {who says so: sentence}.
        self._taps, self._lasting = taps, lasting
        self._probes = probes  # {layer index: LayerProbe}
        self._hidden = hidden
        self._gradients = gradients
        self._actuator = actuator
        self._interventions = interventions
        self._early = early  # An early.Early.
        self._bindings = Bindings(actuator.bound)
        self._next_step = start_step
        self._pid = os.getpid()
        self._pending_state = None
        self._given = {}  # Array signals of the step to come, by hand: {name: list or 1-D tensor}.
        self.optimizer_steps = 0
        fuse.on_blow(self._let_go)

    def before_update(self, optimizer):
        """Inside optimizer.step."""
        if self._early.due:
            self._early.ask()
        self.optimizer_steps += 1
        self._gradients.read(optimizer)

    def rate(self, base):
        """The rate of the optimizer step to come."""
        return self._client.learning_rate(base) if self._client is not None and os.getpid() == self._pid else base

    def open(self, last=True, resuming=False):
        """Opens the client, unless it is too early and there will be another call. Raises what _abi.Client raises; a
        client that cannot work blows nothing, it stays inert.
        """
        opened = self._opener.open(last, resuming)
        if opened is None:
            return
        self._client, self._layout, self._collective = opened.client, opened.layout, opened.collective
        self._gradients.settle(opened.weights, opened.vocabularies)
        if self._client is None:
            self._fuse.blown = True
            self._let_go()
            return
        if self._client.options["rank"] == 0:
            self._arrivals = Arrivals(self._client, self._client.options, self._fuse)
            if self.together:
                self._early.lead(self._client, self._collective)
        if self._client.opened not in (_abi.OK, _abi.INACTIVE):
            self._fuse.say(f"not watching: {self._client.last_error or 'status %d' % self._client.opened}")
        if self._client.opened != _abi.OK and not self.together:
            self._fuse.blown = True
            self._let_go()
            return
        if self.together and self._client.last_error:
            self._fuse.say(self._client.last_error)
        self._show_holds()
        if self._pending_state is not None:
            self._load(*self._pending_state)
            self._pending_state = None

    @property
    def together(self):
        """Whether other ranks wait for this one at each boundary."""
        return self._collective is not None

    @property
    def status(self):
        """As Monitor.status, of a monitor that is active."""
        if self._unsure:
            return "unsure"
        if self._holds:
            return "held"
        return "acting" if self._client is not None and self._client.options["allow"] else "watching"

    def step(self, loss, step, grad_norm, tokens, scalars):
        if os.getpid() != self._pid:
            return
        if self._client is None:
            self.open()
            if self._fuse.blown:
                return
        self._stage = _TO_BEGIN
        if self._arrivals is not None:
            self._arrivals.look()
        if self._client.options["allow"]:
            self.hold("bindings", self._bindings.trouble())
        step = self._number(step)
        self._next_step = step + 1
        report = Report(self._fuse, self._layout)
        report.scalar("loss", loss)
        report.scalar("tokens", tokens)
        for name, value in scalars.items():
            report.scalar(name, value)
        for name, values in self._given.items():
            report.given(name, values)
        self._given = {}
        self._gradients.report(report, grad_norm if report.scalar("grad_norm", grad_norm) else None)
        self._hidden.report(report)
        self._add_attention(report)
        ratio = self._actuator.qk_ratio()
        if ratio is not None:
            report.later([ratio], lambda values: report.scalar("qk_ratio", values[0]))
        alphas = self._interventions.show_alphas(report) if self._allows("deepnorm_alpha") else None
        self._begin(step)
        report.send(self._client, self._check)
        self._end()
        if alphas is not None:
            self._interventions.alphas.check(alphas)
            self.hold("alpha", self._interventions.alphas.disabled)
            self._interventions.move_alphas(self._client)
        self._apply_orders(step)
        self._pass_boundary()

    def _allows(self, kind):
        return kind in self._client.options["allow"].split(",")

    def _begin(self, step):
        self._check(self._client.begin(step))
        self._stage = _TO_END

    def _end(self):
        self._stage = _TO_POLL
        self._boundary += 1
        self._early.over()
        unsure = self._check(self._client.end()) == _abi.UNSURE
        if unsure and not self._unsure:
            cause = self._collective and self._collective.failure
            self._fuse.say(f"unsure: {self._client.last_error}{f' ({cause})' if cause else ''}. Make weights and state "
                           "equal on all ranks (load_state_dict everywhere) or restart, before the next optimizer step",
                           logging.CRITICAL, about=(self, self._loads))
        self._unsure = unsure

    def _pass_boundary(self):
        """What orders say for the step to come."""
        self._interventions.passed(self._boundary)
        for one in self._lasting:
            one.passed()
        self._stage = _PASSED
        if self._collective is not None:
            self._early.begun()
            self._collective.raise_interrupt()

    def keep_pace(self):
        """After an error of ours: passes the boundary all the same, with what is left of it, where other ranks wait for
        this one or a rate is under a cap that must not vanish at once. Nothing more is applied; what was agreed on
        already is refused here, which leaves this rank unsure.
        """
        capped = any(one.multiplier != 1.0 for one in self._lasting)
        if not (self.together or capped) or self._client is None or os.getpid() != self._pid:
            return
        self.hold("error", "this rank stopped watching after an error of its own")
        if self._stage in (_PASSED, _TO_BEGIN):
            self._next_step += self._stage == _PASSED
            self._begin(self._next_step - 1)
        if self._stage == _TO_END:
            self._end()
        for _ in range(_ORDERS_MAX):
            order = self._client.poll()
            if order is None:
                break
            self._client.ack(order, _abi.REFUSED, self._holds["error"])
        self._pass_boundary()

    def hold(self, who, reason):
        """Nothing is applied while somebody gives a reason; "" takes it away."""
        if reason == self._holds.get(who, ""):
            return
        if reason:
            self._holds[who] = reason
            self._fuse.say(f"nothing will be applied: {reason}", about=(self, who, reason, self._loads))
        else:
            del self._holds[who]
        self._show_holds()

    def _show_holds(self):
        if self._client is not None:
            self._client.hold(next(iter(self._holds.values()), None))

    def requests(self):
        return self._interventions.requests()

    def _number(self, step):
        """The number of this step, as it was given or counted on."""
        if step is None:
            return self._next_step
        number = whole_number(step) if not isinstance(step, torch.Tensor) or whole(step) else None
        if number is None:
            self._fuse.say(f"mon.step: step is {shown(step)}, wanted a whole number within 2^53 of 0; counted on from "
                           "the last", about="mon.step: step")
            return self._next_step
        return number

    def _add_attention(self, report):
        """Adds the maxima of all layers. Layers of a kind that may not clip are left out where others may: one
        blind layer must not take the guard from the rest.
        """
        taken = {}
        bound = self.together and self._allows("qk_clip")
        for index, probe in self._probes.items():
            maxima, kind = probe.take()
            if maxima is not None and (not bound or self._may_order(index)):
                taken[index] = maxima, kind
        if not taken:
            return
        firm = {index: pair for index, pair in taken.items() if attention.may_clip(pair[1])}
        if firm and len(firm) < len(taken):
            weak = sorted(set(taken) - set(firm))
            self._fuse.say(f"maxima of layers {weak} are only bounds and are left out of the reports; those of the "
                           "other layers may clip")
        taken = firm or taken
        kind = functools.reduce(attention.weaker, (pair[1] for pair in taken.values()))
        report.attention({index: maxima for index, (maxima, _) in taken.items()}, kind)

    def _may_order(self, index):
        """Of several ranks: an order that one rank refuses leaves it unsure, so no maximum may ask for a clip that
        cannot be.
        """
        trouble = self._actuator.trouble(index)
        if trouble:
            self._fuse.say(f"the maxima of layer {index} are not reported, since it cannot be clipped: {trouble}",
                           about=(self, index))
        return not trouble

    def _apply_orders(self, step):
        self._actuator.look_back(self.optimizer_steps)
        for _ in range(_ORDERS_MAX):
            order = self._client.poll()
            if order is None:
                return
            self._check(self._client.ack(order, *self._apply(order, step)))
            if order.kind == b"deepnorm_alpha":
                self._interventions.move_alphas(self._client)

    def _apply(self, order, step):
        """(outcome, reason)."""
        kind = order.kind.decode(errors="replace")
        if kind != "qk_clip":
            registers = [(r.id, r.from_, r.value) for r in order.registers[: order.register_count]]
            outcome = self._interventions.apply(kind, registers, order.intent_id.decode(errors="replace"), step)
            if outcome[0] != _abi.APPLIED:
                self._fuse.say(f"{kind} was not applied: {outcome[1]}")
            return outcome
        q, k = ([(f.layer, f.head, f.factor) for f in factors if self._layout.holds(f.layer)]
                for factors in (order.q[: order.q_count], order.k[: order.k_count]))
        return self._actuator.apply(q, k)

    def _check(self, status):
        if status == _abi.INVALID:
            sentence = self._client.last_error
            if self._arrivals is not None:
                self._arrivals.of_arguments(sentence)
            self._fuse.say(sentence)
        return status

    def record(self, signal, values):
        if os.getpid() != self._pid:
            return
        about = f"mon.record: {shown(signal)}"
        if not isinstance(signal, str):
            self._fuse.say(f"{about} is no name of a signal; left out", about=about)
            return
        try:
            if isinstance(values, torch.Tensor):
                if values.dim() != 1 or not whole(values) or values.is_complex():
                    raise ValueError
                values = values.detach().float().clone()  # As it is now.
            else:
                values = [None if value is None else float(value) for value in values]
        except (RuntimeError, TypeError, ValueError, OverflowError):
            self._fuse.say(f"{about} is {shown(values)}, wanted a number for each layer here, in a list or a whole 1-D "
                           "tensor; left out", about=about)
            return
        self._given[signal] = values

    def attention(self, layer, q, k, scale, causal, mask, bias):
        probe = self._probe(layer)
        if probe is None or not torch.is_grad_enabled():
            return
        try:
            probe.pair(q, k, scale, causal, mask, bias)
        except (AttributeError, IndexError, RuntimeError, TypeError) as error:
            self._fuse.say(f"mon.attention: what layer {layer} was given cannot be measured ({error}), wanted the "
                           "arguments of gyrostat.max_logits; left out", about="mon.attention")

    def attention_max(self, layer, maxima, kind):
        if kind not in attention.KINDS:
            self._fuse.say(f"attention_max: kind is {shown(kind)}, wanted one of {', '.join(attention.KINDS)}")
            return
        probe = self._probe(layer)
        if probe is None or not torch.is_grad_enabled():
            return
        try:
            maxima = torch.as_tensor(maxima).detach().float()
        except (RuntimeError, TypeError, ValueError):
            self._fuse.say(f"attention_max: maxima is {shown(maxima)}, wanted a number for each head; left out",
                           about="attention_max: maxima")
            return
        probe.given(maxima, kind)

    def _probe(self, layer):
        probe = self._probes.get(layer) if isinstance(layer, int) else None
        if probe is None:
            self._fuse.say(f"attention was given for layer {shown(layer)}; the layers with attention are "
                           f"{sorted(self._probes)}")
        return probe

    def reset(self):
        self._new_history()
        if self._client is not None:
            self._check(self._client.reset())

    def _new_history(self):
        self._loads += 1
        self._actuator.forget()
        self._bindings.forget()
        self._interventions.forget()
        self.hold("bindings", "")

    def state_dict(self):
        if self._client is not None:
            client, loop = self._client.save(), self._interventions.state_dict()
        else:
            client, loop = self._pending_state or (b"", self._interventions.state_dict())
        return {"format": 1, "client": client.hex(), "next_step": self._next_step, "loop": loop}

    def load_state_dict(self, state):
        try:
            if state["format"] != 1:
                raise ValueError(f"format {state['format']}, wanted 1")
            saved = bytes.fromhex(state["client"])
            next_step = int(state["next_step"])
            loop = state.get("loop")  # None: of a client that only clipped.
            if loop is not None:
                self._interventions.load_state_dict(loop)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            self._fuse.say(f"load_state_dict: not a state of gyrostat's ({error!r}); nothing was restored")
            return
        self._next_step = next_step
        self._new_history()
        self._pending_state = saved, self._interventions.state_dict()
        if self._client is None:
            # The first step's rate and the first forward's alpha are under what the state holds.
            self.open(last=False, resuming=True)
        else:
            self._load(*self._pending_state)
            self._pending_state = None

    def _load(self, saved, _):
        self._check(self._client.load(saved) if saved else self._client.reset())
        if self._allows("deepnorm_alpha"):
            self._interventions.move_alphas(self._client)

    def _let_go(self):
        self._early.over()
        while self._taps:
            self._taps.pop().remove()

    def close(self):
        self._let_go()
        while self._lasting:
            self._lasting.pop().remove()
        if self._client is not None and os.getpid() == self._pid:
            watching = self._arrivals is not None and self._client.opened == _abi.OK and not self._fuse.blown
            self._client.close(self._arrivals.finish(_abi.FLUSH_MS) if watching else _abi.FLUSH_MS)
            self._client = None
