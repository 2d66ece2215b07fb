"""Command lines over SSH with netmiko: errors are texts, and a text without its end is no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.switches import switch_config
from rackready.drivers.switch import cli_tree
from rackready.drivers.switch.apply import apply_config
from rackready.drivers.switch.arista_eos import AristaEos
from rackready.drivers.switch.cisco_nxos import CiscoNxos
from rackready.drivers.switch.cli_session import judged
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.ledger.store import Ledger
from tests.lines import ssh
from tests.lines.eos import EosLine
from tests.lines.nxos import NxosLine
from tests.lines.sites import rack


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("mtu 9214", "", 0),
        ("mtu 9215", "% Invalid input\r\n", 1),
        ("mtu 9214", "! This command is not yet supported\n", 0),
        ("vlan 5", "                 ^\n% Invalid command at '^' marker.\n", 1),
        ("configure replace bootflash:a", "ERROR: File does not exist\n", 1),
        ("show running-config", "!\nbanner login\n% of users read this\nEOF\n", 0),
        ("show priority-flow-control", "\r\n% Unavailable command\r\n", 1),
    ],
)
def test_an_error_is_a_text_at_the_beginning_of_a_line(command: str, output: str, code: int) -> None:
    assert judged("leaf01", command, output)[0] == code


def test_a_pager_is_no_answer() -> None:
    with pytest.raises(SwitchUnreachableError, match=r"Expected: the whole output Actual: a pager \(--More--\)"):
        judged("leaf01", "show running-config", "vlan 5\n --More-- ")


def test_eos_is_configured_over_ssh(tmp_path: Path) -> None:
    config, line = switch_config(rack("arista_eos"), "leaf01"), EosLine()
    with ssh.serve(line, tmp_path) as target, Ledger.open(tmp_path / "state.sqlite") as ledger:
        ours = AristaEos("leaf01", AristaEos.connect(target))
        try:
            assert apply_config(ours, config, ledger, settle_s=0).changed
            assert not apply_config(ours, config, ledger, settle_s=0).changed
        finally:
            ours.close()
    assert line.startup == line.running.tree
    assert "mtu 9214" in line.running.tree["interface Ethernet16/1"]


def test_nxos_is_configured_over_ssh_and_scp(tmp_path: Path) -> None:
    config, line = switch_config(rack("cisco_nxos"), "leaf01"), NxosLine()
    with ssh.serve(line, tmp_path) as target, Ledger.open(tmp_path / "state.sqlite") as ledger:
        ours = CiscoNxos("leaf01", CiscoNxos.connect(target))
        ours.sleep = line.wait
        try:
            assert apply_config(ours, config, ledger, settle_s=0).changed
        finally:
            ours.close()
    assert line.startup == line.running.tree
    assert "terminal dont-ask" in line.sent
    assert "mtu 9216" in line.running.tree["interface Ethernet1/16"]


def test_a_refused_file_and_a_lost_login_are_told_apart(tmp_path: Path) -> None:
    line = NxosLine()
    del line.running.tree["feature scp-server"]
    with ssh.serve(line, tmp_path) as target:
        session = CiscoNxos.connect(target)
        code, said = session.feed("bootflash:rackready-00000000.cfg", "vlan 5\n")
        assert (code, "SCP refused" in said) == (1, True)
        line.dies_before = len(line.sent)
        with pytest.raises(SwitchUnreachableError, match="`show running-config`"):
            session.run("show running-config", timeout_s=5)
        session.close()


def test_sections_are_paths_and_banners_are_none() -> None:
    text = (
        "! Command: show running-config\nhostname a\nvlan 5-6,9\nbanner login\ninterface Ethernet9/1\n   mtu 1500\n"
        "EOF\nbanner motd #\nvlan 7\n#\ninterface Ethernet1/1\n   mtu 9214\n   tx-queue 3\n      no priority\nend\n"
    )
    assert cli_tree.parse(text) == [
        ("hostname a",),
        ("vlan 5",),
        ("vlan 6",),
        ("vlan 9",),
        ("interface Ethernet1/1",),
        ("interface Ethernet1/1", "mtu 9214"),
        ("interface Ethernet1/1", "tx-queue 3"),
        ("interface Ethernet1/1", "tx-queue 3", "no priority"),
    ]


@pytest.mark.parametrize(
    ("line", "removal"),
    [
        ("mtu 9214", "no mtu 9214"),
        ("no switchport", "default switchport"),
        ("error-correction encoding reed-solomon", "default error-correction encoding reed-solomon"),
        ("no priority", "default priority"),
    ],
)
def test_a_removal_restores_the_default_and_leads_back_to_its_line(line: str, removal: str) -> None:
    path = ("interface Ethernet1/1", line)
    assert cli_tree.removal(path) == ("interface Ethernet1/1", removal)
    assert cli_tree.target(cli_tree.removal(path)) == path
    assert (cli_tree.removes(path), cli_tree.removes(cli_tree.removal(path))) == (False, True)


def test_lines_are_typed_in_their_sections_which_are_left_again() -> None:
    paths = [("vlan 5",), ("interface a", "mtu 1"), ("interface a", "queue 3", "no priority"), ("qos map x",)]
    assert cli_tree.typed(paths) == [
        *("vlan 5", "interface a", "mtu 1", "queue 3", "no priority", "exit", "exit", "qos map x"),
    ]
