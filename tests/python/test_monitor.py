"""What a training loop may rely on: nothing raises, nothing is lost that should not be, nothing happens unasked."""

import logging
import math
import os
import subprocess
import sys

import pytest
import torch

import gyrostat
import models
from gyrostat import _abi


def start(model=None, **options):
    return gyrostat.watch(model or models.Model(), address="fake:1", **options)


def test_importing_does_not_import_torch():
    code = "import sys, gyrostat; sys.exit('torch' in sys.modules or gyrostat.__version__ != '0.1.0')"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'wach'"):
        gyrostat.wach


@pytest.mark.parametrize("environment,options", [
    ({}, {}),
    ({"GYROSTAT_DISABLE": "1"}, {"address": "fake:1"}),
    ({"RANK": "1", "WORLD_SIZE": "2"}, {"address": "fake:1"}),
    ({"LOCAL_RANK": "3"}, {"address": "fake:1"}),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, {"address": "fake:1"}),
])
def test_inert_silently(fake_library, monkeypatch, caplog, environment, options):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gyrostat.watch(model, optimizer, **options) as mon:
        mon.step(models.loss_of(model, models.batch()), anything=object())
        mon.attention(0, None, None)
        mon.attention_max(0, None)
        mon.reset()
        mon.load_state_dict({"format": 1, "client": "ab", "next_step": 3})
        assert mon.state_dict() == {"format": 1, "client": "ab", "next_step": 3} and not mon.active
    assert fake_library.last is None and caplog.records == []
    assert type(model.layers[0]) is models.Block and "step" not in optimizer.__dict__


def test_environment_gives_address_rank_and_run(fake_library, monkeypatch):
    monkeypatch.setenv("GYROSTAT_ADDRESS", "env:2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("SLURM_JOB_NAME", "big run/7")
    model = models.Model()
    gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)).close()
    options = fake_library.last.options
    assert (options["address"], options["rank"], options["world_size"]) == ("env:2", 0, 8)
    assert options["run"] == "big-run-7"
    monkeypatch.setenv("GYROSTAT_RUN", "named")
    gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)).close()
    assert fake_library.last.options["run"] is None  # The library reads GYROSTAT_RUN itself.


def test_missing_library_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("GYROSTAT_LIBRARY", "/nowhere/libgyrostat.so")
    mon = start()
    assert not mon.active and len(caplog.records) == 1
    assert "not watching: libgyrostat.so cannot be loaded: /nowhere/libgyrostat.so" in caplog.text


def test_a_client_that_does_not_open_is_said_and_leaves_the_model_alone(fake_library, monkeypatch, caplog):
    monkeypatch.setattr(fake_library, "opened_status", _abi.INVALID)
    model = models.Model()
    mon = gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), address="fake:1")
    assert not mon.active and caplog.messages == ["not watching: fake trouble"]
    assert type(model.layers[0]) is models.Block


def test_strange_models_are_watched_for_what_they_have(fake_library, caplog):
    for model in (torch.nn.Linear(2, 2), torch.nn.Module(), torch.jit.script(torch.nn.Linear(2, 2))):
        with start(model) as mon:
            mon.step(1.0)
            assert mon.active
        assert fake_library.last.reports[-1]["loss"] == 1.0
    assert "no transformer layers were found" in caplog.text


@pytest.mark.parametrize("loss,expected", [
    (2.5, 2.5), (torch.tensor(2.5), 2.5), (torch.tensor([2.0, 3.0]), 2.5), (torch.tensor([[7]]), 7.0),
    (torch.tensor(2.5, requires_grad=True), 2.5), (torch.tensor(2.5, dtype=torch.bfloat16), 2.5), (True, 1.0),
])
def test_losses_of_every_kind(fake_library, loss, expected):
    start().step(loss)
    assert fake_library.last.reports[0]["loss"] == expected


def test_non_finite_values_are_data(fake_library):
    mon = start()
    mon.step(math.nan, extra=math.inf)
    assert math.isnan(fake_library.last.reports[0]["loss"]) and fake_library.last.reports[0]["extra"] == math.inf


def test_steps_are_counted_from_the_start_or_given(fake_library):
    mon = start(start_step=100)
    for step in (None, None, 7, None):
        mon.step(1.0, step=step)
    assert fake_library.last.steps == [100, 101, 7, 8]


def test_tokens_and_user_scalars(fake_library):
    start().step(1.0, tokens=512, accuracy=torch.tensor(0.5))
    assert fake_library.last.reports[0] == {"loss": 1.0, "tokens": 512.0, "accuracy": 0.5}


def test_arrays_by_hand(fake_library, caplog):
    mon = start()
    given = torch.tensor([0.5, 0.25])
    mon.record("update_rms", given)
    given.fill_(9)  # Too late.
    mon.record("mlp_out_ms", [1, 2])
    mon.record("mlp_out_ms", [torch.tensor(3.0), None])
    mon.step(1.0)
    assert fake_library.last.reports[0]["update_rms"] == [0.5, 0.25]
    assert fake_library.last.reports[0]["mlp_out_ms"] == [3.0, pytest.approx(_abi.ABSENT)]
    mon.step(1.0)
    assert not {"update_rms", "mlp_out_ms"} & set(fake_library.last.reports[1])
    for wrong in (7, "ab", ["x"], torch.ones(2, 2), object()):
        mon.record("param_norm", wrong)
    mon.record(7, [1.0])
    mon.step(1.0)
    assert "param_norm" not in fake_library.last.reports[2] and mon.active
    assert "mon.record: 'param_norm' is 7, wanted a number for each layer here" in caplog.text
    assert "mon.record: 7 is no name of a signal" in caplog.text
    mon.close()
    mon.record("param_norm", [1.0, 2.0])


def test_attention_by_hand(fake_library, caplog):
    model = models.Model(kernel="hidden", layers=1, kv_heads=2)
    with start(model) as mon:
        torch.manual_seed(0)
        q, k = torch.randn(2, 4, 5, 4), torch.randn(2, 2, 5, 4)
        mon.attention(0, q, k, causal=True)
        with torch.no_grad():
            mon.attention(0, 100 * q, k)
        mon.attention(9, q, k)
        mon.attention(0, q[0], k)
        mon.step(1.0)
        mon.attention_max(0, [1, 2, 3, 4], kind="lse_upper")
        mon.attention_max(0, [9, 9, 9, 9], kind="wrong")
        mon.attention_max(0, [9, 9])
        mon.step(1.0)
    expected = gyrostat.max_logits(q, k, causal=True).tolist()
    assert fake_library.last.reports[0]["attn_logit_max"] == pytest.approx(expected)
    assert fake_library.last.reports[1]["attn_logit_max"] == [1, 2, 3, 4]
    assert fake_library.last.kinds == ["exact", "lse_upper"]
    for words in ("layer 9", "wanted [B, H, Tq, D]", "kind is 'wrong'", "maxima of 2 heads were given"):
        assert words in caplog.text


def test_blind_layers_do_not_disarm_the_others(fake_library, caplog):
    model = models.Model(layers=2)
    model.layers[0].attn.kernel = "hidden"
    with start(model) as mon:
        for seed in range(2):
            models.loss_of(model, models.batch(seed)).backward()
            mon.step(1.0)
    row = fake_library.last.reports[1]["attn_logit_max"]
    assert all(value < -3e38 for value in row[:4]) and row[4:] == pytest.approx(model.maxima()[1].tolist())
    assert fake_library.last.kinds[1] == "exact" and "layers [0] are only bounds" in caplog.text


def test_layers_with_fewer_heads_are_padded_with_absent(fake_library):
    model = models.Model(layers=2)
    model.layers[1] = models.Block(heads=2, kv_heads=2)
    with start(model) as mon:
        models.loss_of(model, models.batch()).backward()
        mon.step(1.0)
    row = fake_library.last.reports[0]["attn_logit_max"]
    assert row[4:6] == pytest.approx(model.layers[1].attn.maxima.tolist()) and all(v < -3e38 for v in row[6:])


def test_fully_masked_is_absent_not_infinite(fake_library):
    with start(models.Model(layers=1)) as mon:
        mon.attention_max(0, [-math.inf, 1.0, 2.0, math.nan])
        mon.step(1.0)
    row = fake_library.last.reports[0]["attn_logit_max"]
    assert row[0] == pytest.approx(_abi.ABSENT) and row[1:3] == [1, 2] and math.isnan(row[3])


def test_errors_of_ours_never_reach_the_loop(fake_library, monkeypatch, caplog):
    model = models.Model()
    mon = start(model)
    mon.step(1.0)
    monkeypatch.setattr(fake_library, "begin", lambda self, step: 1 / 0)
    caplog.clear()
    for _ in range(3):
        mon.step(1.0)
    assert not mon.active and [r.levelno for r in caplog.records] == [logging.ERROR]
    assert type(model.layers[0]) is models.Block  # Let go of.
    mon.close()


def test_close_lets_go_of_everything_and_is_final(fake_library):
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mon = gyrostat.watch(model, optimizer, address="fake:1")
    mon.close()
    mon.close()
    mon.step(1.0)
    assert fake_library.last.closed and fake_library.last.reports == []
    assert type(model.layers[0]) is models.Block and type(model.layers[0].attn) is models.Attention
    assert "step" not in optimizer.__dict__


def test_a_dropped_monitor_closes_itself(fake_library):
    mon = start()
    mon.step(1.0)
    del mon
    assert fake_library.last.closed


def test_state_survives_a_restart(fake_library):
    mon = start()
    mon.step(1.0, step=41)
    state = mon.state_dict()
    loop = state.pop("loop")
    assert state == {"format": 1, "client": b"ledger".hex(), "next_step": 42}
    state["loop"] = loop
    mon.close()
    assert mon.state_dict() == state
    again = start()
    again.load_state_dict(state)
    assert again.state_dict() == state
    again.step(1.0)
    assert fake_library.last.loaded == [b"ledger"] and fake_library.last.steps == [42]


@pytest.mark.parametrize("state", [None, 3, {}, {"format": 2}, {"format": 1, "client": "xyz", "next_step": 0},
                                   {"format": 1, "client": "", "next_step": 0, "loop": {"clip_limit": -1}}])
def test_strange_states_are_said_and_not_used(fake_library, caplog, state):
    mon = start()
    mon.step(1.0)
    mon.load_state_dict(state)
    assert mon.active and fake_library.last.loaded == [] and "nothing was restored" in caplog.text


def test_ranks_without_torch_distributed_only_watch(fake_library, monkeypatch, caplog):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    start(allow=("qk_clip",)).step(1.0)
    assert fake_library.last.options["world_size"] == 2 and len(fake_library.last.reports) == 1
    assert "the 2 ranks of this job cannot agree" in caplog.text
    monkeypatch.setenv("RANK", "1")
    assert start(allow=("qk_clip",)).status == "inactive"


def test_an_empty_state_still_begins_an_epoch(fake_library):
    mon = start()
    mon.step(1.0)
    mon.load_state_dict({"format": 1, "client": "", "next_step": 0})
    mon.reset()
    assert fake_library.last.resets == 2


def test_a_forked_child_does_nothing(fake_library):
    mon = start()
    mon.step(1.0)
    child = os.fork()
    if child == 0:
        mon.step(1.0)
        mon.close()
        os._exit(len(fake_library.last.reports) + 10 * fake_library.last.closed)
    assert os.waitpid(child, 0)[1] >> 8 == 1 and mon.active


def test_data_loader_workers(fake_library):
    from torch.utils.data import DataLoader

    model = models.Model()
    with start(model) as mon:
        for tokens in DataLoader([models.batch(s)[0] for s in range(8)], batch_size=2, num_workers=2):
            models.loss_of(model, tokens).backward()
            mon.step(1.0)
    assert len(fake_library.last.reports) == 4
