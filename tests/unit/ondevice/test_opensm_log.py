"""What opensm's own log says it did. The lines are those of Debian 12's opensm 3.3.23 on ibsim."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.mark.parametrize(
    ("text", "engine", "state", "problems"),
    [
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


def test_the_program_exits_with_1_on_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text(MASTER)
    assert opensm_log.main(["opensm_log.py", str(log), "updn"]) == 0
    assert json.loads(capsys.readouterr().out) == {"format": opensm_log.FORMAT, "state": "MASTER", "problems": []}
    assert opensm_log.main(["opensm_log.py", str(tmp_path / "none"), "updn"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == ["log not readable: No such file or directory"]
