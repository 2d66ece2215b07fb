"""What opensm's own log says it did. The lines are those of Debian 12's opensm 3.3.23 on ibsim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import opensm_log

HEAD = (
    "Nov 27 06:40:01 072172 [E3D84740] 0x80 -> OpenSM 3.3.23\n"
    "Nov 27 06:40:01 0 [E] 0x80 -> Entering DISCOVERING state\n"
)
MASTER = (
    HEAD
    + "Nov 27 06:40:01 081697 [E0] 0x80 -> Entering MASTER state\n"
    + "Nov 27 06:40:01 083073 [E0] 0x02 -> osm_ucast_mgr_process: updn tables configured on all switches\n"
    + "Nov 27 06:40:01 084775 [E0] 0x02 -> SUBNET UP\n"
)
STANDBY = HEAD + "Nov 27 06:40:03 085330 [B5] 0x80 -> Entering STANDBY state\n"
ENGINE = "Nov 27 06:37:22 724195 [B6] 0x01 -> setup_routing_engines: Failed to setup routing engine 'no_fallback'\n"
PARTITIONS = (
    "Nov 27 06:37:22 7 [B6] 0x01 -> "
    "osm_prtn_make_partitions: Partition configuration in error; retrying with default config\n"
)
ERRORS = (
    "Nov 27 06:41:01 1 [E0] 0x01 -> sm_mad_ctrl_send_err_cb: ERR 3119: Set method failed for attribute 0x15\n"
    "Nov 27 06:41:01 2 [E0] 0x80 -> Errors during initialization\n"
    "Nov 27 06:41:01 3 [E0] 0x01 -> do_sweep:\n\n\n"
    "******************************************************************\n"
    "****************** ERRORS DURING INITIALIZATION ******************\n"
    "******************************************************************\n\n\n"
)
"""A sweep with a node that reboots (osm_sm_mad_ctrl.c, sm_mad_ctrl_send_err_cb; osm_state_mgr.c, do_sweep)."""
AGAIN = "Nov 27 06:42:01 1 [E0] 0x80 -> Entering MASTER state\n"
SWEPT = MASTER.removeprefix(HEAD).split("\n", 1)[1]
UNIT = "rackready-opensm@leaf01.service"


@pytest.mark.parametrize(
    ("text", "engine", "state", "problems"),
    [
        (MASTER + ERRORS + SWEPT, "updn", "MASTER", []),
        (MASTER + ERRORS, "updn", "MASTER", ["errors in its last sweep, and no SUBNET UP after them"]),
        (
            MASTER + "Nov 27 06:41:01 2 [E0] 0x01 -> osm_ucast_mgr_process: "
            "No routing engine able to successfully configure  switch tables on current fabric\n",
            "updn",
            "MASTER",
            ["errors in its last sweep, and no SUBNET UP after them"],
        ),
        (MASTER + ERRORS + STANDBY.removeprefix(HEAD), "updn", "STANDBY", []),
        (MASTER + STANDBY.removeprefix(HEAD) + AGAIN, "updn", "MASTER", ["no SUBNET UP"]),
        (MASTER, "updn", "MASTER", []),
        (STANDBY, "updn", "STANDBY", []),
        (MASTER, "ftree", "MASTER", ["routing tables of updn"]),
        (MASTER.replace("SUBNET UP", "SWEEP"), "updn", "MASTER", ["no SUBNET UP"]),
        (HEAD, "updn", "DISCOVERING", ["state DISCOVERING"]),
        ("", "updn", "none", ["state none"]),
        (
            MASTER + ENGINE,
            "updn",
            "MASTER",
            ["setup_routing_engines: Failed to setup routing engine 'no_fallback'"],
        ),
        (
            MASTER + PARTITIONS,
            "updn",
            "MASTER",
            ["osm_prtn_make_partitions: Partition configuration in error; retrying with default config"],
        ),
    ],
)
def test_only_what_opensm_says_since_its_last_start_counts(
    text: str, engine: str, state: str, problems: list[str]
) -> None:
    assert opensm_log.judge(MASTER + PARTITIONS + text, engine) == (state, problems) if text else True
    assert opensm_log.judge(text, engine) == (state, problems)


def said(
    log: Path, capsys: pytest.CaptureFixture[str], text: str | None = None, *, active: bool = True
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the document of the program about a log with this text."""
    if text is not None:
        log.write_text(text)
    code = opensm_log.main(["opensm_log.py", str(log), "updn", UNIT], lambda unit: active and unit == UNIT)
    return code, json.loads(capsys.readouterr().out)


def test_the_program_exits_with_1_on_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = {"format": opensm_log.FORMAT, "state": "MASTER", "problems": [], "unread": ""}
    assert said(tmp_path / "log", capsys, MASTER) == (0, whole)
    code, document = said(tmp_path / "none", capsys)
    assert (code, document["problems"]) == (1, ["log not readable: No such file or directory"])


def test_a_log_that_opensm_emptied_is_read_from_its_next_sweep_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its start is gone (libopensm/osm_log.c, truncate_log_file)."""
    log, trap = tmp_path / "log", "Nov 27 06:41:01 1 [E0] 0x01 -> log_rcv_cb_error: ERR 3111: Received MAD\n"
    code, document = said(log, capsys, trap)
    assert (code, document["problems"]) == (3, [])
    assert document["unread"] == (
        "rackready-opensm@leaf01.service: opensm emptied its log (log_max_size), and has not swept since. "
        "Run `systemctl kill --signal=HUP rackready-opensm@leaf01.service` on the node: a master sweeps then. "
        "If the log still tells nothing, run `systemctl restart rackready-opensm@leaf01.service`"
    )
    assert said(log, capsys, trap, active=False)[1]["problems"] == ["state none"]
    code, document = said(log, capsys, trap + PARTITIONS)
    assert (code, document["unread"]) == (1, ""), "what it complains of counts"
    code, document = said(log, capsys, trap + SWEPT)
    assert (code, document["state"], document["unread"]) == (0, "MASTER", "")
    code, document = said(log, capsys, trap + SWEPT.replace("updn", "minhop"))
    assert (code, document["problems"]) == (1, ["routing tables of minhop"])
    code, document = said(log, capsys, trap + SWEPT + STANDBY.removeprefix(HEAD))
    assert (code, document["state"]) == (0, "STANDBY")
