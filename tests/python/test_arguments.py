"""Wrong arguments are said once, in words that help, and do as little as they can."""

import math

import pytest
import torch

import gyrostat
import models


class Hostile:
    """Fails whatever is asked of it."""

    def _fail(self, *_):
        raise ZeroDivisionError("of the user's own")

    __repr__ = __float__ = __int__ = __eq__ = __iter__ = __len__ = __bool__ = _fail
    __hash__ = None


def start(**options):
    model = options.pop("model", None) or models.Model()
    return gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), **{"address": "fake:1", **options})


def only_warning(caplog):
    """The one sentence that was said; no traceback."""
    assert [(r.levelname, r.exc_info) for r in caplog.records] == [("WARNING", None)], caplog.text
    return caplog.messages[0]


@pytest.mark.parametrize("options,sentence", [
    ({"layers": 5}, "layers is 5, wanted a sequence of modules, or the dotted name of one in the model"),
    ({"layers": "x"}, "layers is 'x', wanted a sequence"),
    ({"layers": []}, "layers is a list, wanted a sequence"),
    ({"layers": Hostile()}, "layers is a Hostile, wanted a sequence"),
    ({"heads": "4"}, "heads is '4', wanted a whole number from 1 to 1024"),
    ({"heads": 0}, "heads is 0, wanted a whole number"),
    ({"heads": 5000}, "heads is 5000, wanted a whole number"),
    ({"heads": torch.ones(2)}, "heads is a Tensor, wanted a whole number"),
    ({"kv_heads": True}, "kv_heads is True, wanted a whole number"),
    ({"kv_heads": 3}, "kv_heads is 3, wanted what divides the 4 heads of layers.0.attn"),
    ({"q_proj": "nope"}, "q_proj is 'nope', wanted k_proj with it"),
    ({"k_proj": "nope"}, "k_proj is 'nope', wanted q_proj with it"),
    ({"q_proj": 5, "k_proj": 5}, "q_proj is 5, wanted the dotted name of a module inside a layer"),
    ({"q_proj": "attn.q_proj", "k_proj": "attn.nope"}, "k_proj is 'attn.nope', wanted the dotted name of a module "
                                                       "inside layers.0"),
    ({"group": 5}, "group is 5, but torch.distributed is not initialized"),
    ({"scheduler": 5}, "scheduler is 5, wanted one with step()"),
    ({"run": ["a"]}, "run is a list, wanted a name"),
])
def test_what_can_be_ignored_is_as_good_as_not_given(fake_library, caplog, options, sentence):
    start().close()
    plain = fake_library.last
    with start(**options) as mon:
        mon.step(1.0)
        assert mon.active and fake_library.last.reports[0]["loss"] == 1.0
    assert only_warning(caplog).startswith(sentence) and "taken as not given" in caplog.text
    assert fake_library.last.model == plain.model and fake_library.last.options == plain.options


@pytest.mark.parametrize("address", [7431, "nohost", "host:0", "host:65536", "host:x", ":1", "http://host:7431"])
def test_an_address_that_cannot_be_one(fake_library, caplog, address):
    mon = start(address=address)
    mon.step(1.0)
    assert not mon.active and fake_library.last is None
    assert only_warning(caplog) == (f"not watching: the address is {address!r}, wanted host:port with a port from 1 to "
                                    "65535")


@pytest.mark.parametrize("address", ["host:1", "[::1]:7431", "unix:/run/x", "10.0.0.1:65535"])
def test_addresses_that_may_be_one(fake_library, caplog, address):
    assert start(address=address).active and caplog.records == []


def test_a_model_that_is_none(fake_library, caplog):
    mon = gyrostat.watch("model", address="fake:1")
    mon.step(1.0)
    assert not mon.active and only_warning(caplog) == "not watching: model is 'model', wanted a torch.nn.Module"


@pytest.mark.parametrize("run,name", [("a b", "a-b"), ("a\nb", "a-b"), ("x" * 10000, "x" * 128), ("é/ü", "---")])
def test_a_strange_name_is_made_usable_and_said_in_one_short_line(fake_library, caplog, run, name):
    assert start(run=run).active and fake_library.last.options["run"] == name
    sentence = only_warning(caplog)
    assert f"the run is called {name}" in sentence and "\n" not in sentence and len(sentence) < 300


@pytest.mark.parametrize("run", [5, "5"])
def test_a_number_is_a_name(fake_library, caplog, run):
    assert start(run=run).active and fake_library.last.options["run"] == "5" and caplog.records == []


@pytest.mark.parametrize("allow,seen", [
    (None, "None"), (5, "5"), (b"qk_clip", "b'qk_clip'"), ({"qk_clip": False}, "a dict"), (Hostile(), "a Hostile"),
])
def test_what_names_no_kinds_allows_nothing(fake_library, caplog, allow, seen):
    assert start(allow=allow).active and fake_library.last.options["allow"] == ""
    assert only_warning(caplog) == (f'allow is {seen}, wanted a sequence of kinds, such as ("qk_clip",); nothing is '
                                    "allowed")


def test_kinds_that_cannot_be_applied_are_said(fake_library, caplog):
    start(allow=("qk_clip", "stop", 5, "deepnorm_alpha", "halt"), set_alpha=print)
    assert fake_library.last.options["allow"] == "qk_clip,halt"
    assert "allow names 'stop'" in caplog.text and "allow names 5" in caplog.text
    assert "deepnorm_alpha is not allowed after all: alpha is not bound" in caplog.text
    for allow in ("qk_clip", ["qk_clip"], {"qk_clip"}):
        start(allow=allow)
        assert fake_library.last.options["allow"] == "qk_clip"
    start(allow="qk_clip,halt")
    assert fake_library.last.options["allow"] == ""


@pytest.mark.parametrize("tau_min", ["x", "30", -1, math.nan, math.inf, 1e10, True, [30], Hostile()])
def test_a_bound_that_cannot_be_read_allows_nothing(fake_library, caplog, tau_min):
    assert start(tau_min=tau_min, allow=("qk_clip",)).active
    options = fake_library.last.options
    assert (options["allow"], options["tau_min"]) == ("", None)
    sentence = only_warning(caplog)
    assert sentence.startswith("tau_min is ") and sentence.endswith("from 0 to 1e+09; nothing is allowed")
    caplog.clear()
    assert start(tau_min=tau_min).active and "taken as not given" in only_warning(caplog)


@pytest.mark.parametrize("tau_min", [0, 30, 30.5, 1e9])
def test_a_bound_is_handed_on(fake_library, caplog, tau_min):
    start(tau_min=tau_min, allow="qk_clip")
    assert fake_library.last.options["tau_min"] == tau_min and fake_library.last.options["allow"] == "qk_clip"
    assert caplog.records == []


def test_what_is_no_optimizer_is_left_out(fake_library, caplog):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with gyrostat.watch(model, [optimizer, "adam"], address="fake:1") as mon:
        models.loss_of(model, models.batch()).backward()
        optimizer.step()
        mon.step(1.0)
    assert fake_library.last.reports[0]["learning_rate"] == 0.5
    assert only_warning(caplog).startswith("optimizer is 'adam', wanted one with step() and param_groups")


@pytest.mark.parametrize("start_step", ["a", None, math.nan, 2**70, 1.5, True])
def test_a_first_step_that_is_no_number(fake_library, caplog, start_step):
    start(start_step=start_step).step(1.0)
    assert fake_library.last.steps == [0] and only_warning(caplog).startswith("start_step is ")


BAD_STEPS = [math.nan, math.inf, "x", "7", 1.5, 2**80, True, [7], torch.tensor([1, 2]), Hostile()]


def test_bad_steps_are_counted_on_and_said_once(fake_library, caplog):
    mon = start()
    mon.step(1.0, step=20)
    for step in BAD_STEPS:
        mon.step(1.0, step=step)
    mon.step(1.0, step=50)
    assert fake_library.last.steps == [*range(20, 21 + len(BAD_STEPS)), 50] and mon.active
    assert only_warning(caplog) == ("mon.step: step is nan, wanted a whole number within 2^53 of 0; counted on from "
                                    "the last")


@pytest.mark.parametrize("step", [7, 7.0, torch.tensor(7), torch.tensor([7.0]), -7])
def test_steps_that_are_whole_numbers(fake_library, caplog, step):
    start().step(1.0, step=step)
    assert fake_library.last.steps == [int(step)] and caplog.records == []


BAD_VALUES = ["three", object(), {}, Hostile(), torch.tensor([]), torch.tensor(1j), torch.empty(3, device="meta"),
              torch.eye(2).to_sparse()]


@pytest.mark.parametrize("name", ["loss", "grad_norm", "tokens", "mine"])
def test_what_is_no_number_is_left_out_and_said_once(fake_library, caplog, name):
    mon = start()
    for value in BAD_VALUES:
        mon.step(**{name: value, "good": torch.tensor(2.0)})
    mon.step(**{name: 3})
    reports = fake_library.last.reports
    assert mon.active and all(report == {"good": 2.0} for report in reports[:-1]) and reports[-1] == {name: 3.0}
    assert only_warning(caplog).startswith(f"mon.step: {name} is 'three', wanted a number or a dense real tensor")


def test_a_norm_that_is_no_number_does_not_hide_the_measured_one(fake_library):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gyrostat.watch(model, optimizer, address="fake:1") as mon:
        models.loss_of(model, models.batch()).backward()
        optimizer.step()
        mon.step(1.0, grad_norm="large")
    assert fake_library.last.reports[0]["grad_norm"] > 0


def test_attention_by_hand_with_anything(fake_library, caplog):
    q = torch.randn(1, 4, 3, 4)
    with start() as mon:
        mon.attention([0], q, q)
        mon.attention(0, q, q, scale="x")
        mon.attention(0, q, q, mask=torch.zeros(7, 7))
        mon.attention(0, None, q)
        mon.attention_max(0, "x")
        mon.attention_max(0, None)
        mon.attention_max(0, [1.0] * 4, kind=["exact"])
        mon.step(1.0)
        assert mon.active
    assert "attn_logit_max" not in fake_library.last.reports[0]
    assert all(record.exc_info is None for record in caplog.records)
    for words in ("for layer a list", "what layer 0 was given cannot be measured", "maxima is 'x'", "kind is a list"):
        assert words in caplog.text
