"""The log of a campaign: one private file with every command, without secrets; progress has it only on request."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from rackready.campaign.log_file import log_path, logged
from rackready.gates.engine.registry import gate
from rackready.gates.engine.runner import Runner
from rackready.paths import EnvPaths
from tests.gates.fake import FakeConnection, answered
from tests.gates.support import rack

LOG = logging.getLogger("rackready.drivers.remote")


def test_the_log_is_private_dated_in_utc_and_without_secrets(tmp_path: Path) -> None:
    paths, told = EnvPaths(tmp_path, "sim"), list[str]()
    before = logging.getLogger("rackready").level
    with logged(paths, "c1", told.append) as path:
        LOG.debug("node01: nvidia-smi -q -x: exit 0")
        LOG.info("node01: connects with password=hunter2")
    LOG.info("after its end")
    assert path == log_path(paths, "c1")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 ", "AT ", line) for line in lines] == [
        "AT DEBUG   MainThread rackready.drivers.remote: node01: nvidia-smi -q -x: exit 0",
        "AT INFO    MainThread rackready.drivers.remote: node01: connects with password=[scrubbed]",
    ]
    assert told == ["drivers.remote: node01: connects with password=[scrubbed]"], (
        "only what is of level INFO, and only where it is asked for"
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert (logging.getLogger("rackready").level, logging.getLogger("rackready").handlers) == (before, [])


def test_a_resumed_campaign_goes_on_in_its_file_and_a_traceback_stays_one_entry(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    with logged(paths, "c1"):
        LOG.info("first")
    with logged(paths, "c1") as path:
        try:
            int("odd")
        except ValueError:
            LOG.exception("second")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line.rsplit(": ", 1)[-1] for line in lines if not line.startswith(" ")] == ["first", "second"]
    assert lines[-1] == "  ValueError: invalid literal for int() with base 10: 'odd'"


def test_a_full_disk_is_told_once_and_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log_path(EnvPaths(tmp_path, "sim"), "c1")
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    with logged(EnvPaths(tmp_path, "sim"), "c1"):
        LOG.info("first")
        LOG.info("second")
    assert capsys.readouterr().err == (
        f"{path}: the log has gaps - Expected: room for every line Actual: No space left on device. "
        "Free disk space there; the run goes on.\n"
    )


def test_every_attempt_of_a_gate_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    known = rack(1)
    with caplog.at_level(logging.INFO, "rackready.gates.engine.runner"):
        Runner(FakeConnection({"": answered("no report")}), known, lambda *_: None).gate(
            gate("node/gpu/sanity/ecc", {}), list(known.nodes)
        )
    assert [record.getMessage() for record in caplog.records] == [
        f"node/gpu/sanity/ecc on node01: error, attempt {number}" for number in (1, 2)
    ]
