"""Shared fixtures. PYTHONPATH names the build's package (build/<preset>/python); tests of the real library and daemon
use the build of GYROSTAT_BIN (default build/dev/bin) and skip with the reason where it lacks them.
"""

import pathlib
import sys

import pytest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY / "deploy" / "demo"))

import fakes  # noqa: E402  (after the path)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in ("GYROSTAT_ADDRESS", "GYROSTAT_RUN", "GYROSTAT_DISABLE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                 "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fake_library(monkeypatch):
    """watch() works against fakes.FakeClient; the class is returned."""
    from gyrostat import _abi

    monkeypatch.setattr(_abi, "Library", lambda: None)
    monkeypatch.setattr(_abi, "Client", fakes.FakeClient)
    monkeypatch.setattr(fakes.FakeClient, "opened_status", _abi.OK)
    fakes.FakeClient.last = None
    return fakes.FakeClient
