"""Time service: the site's servers in the system's settings and out again, and a clock that must follow one of them.

Settings: chrony.conf of Debian 12 (chrony 4.3) and RHEL 9 (chrony 4.5), cut to the lines that matter. Answers:
`chronyc tracking` of chrony 4.3 (doc/chronyc.adoc), without a daemon and of `-c -N sources` (client.c), and of
`timedatectl show-timesync` (timedatectl.c of systemd 249).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.time_sync import DROP_IN, TIMESYNCD, TimeSync, chrony_text

DEBIAN = """# Include configuration files found in /etc/chrony/conf.d.
confdir /etc/chrony/conf.d

# Use Debian vendor zone.
pool 2.debian.pool.ntp.org iburst

# Use time sources from DHCP.
sourcedir /run/chrony-dhcp
makestep 1 3
"""
RHEL = """# Please consider joining the pool (https://www.pool.ntp.org/join.html).
pool 2.rhel.pool.ntp.org iburst
sourcedir /run/chrony-dhcp
driftfile /var/lib/chrony/drift
"""
TRACKING = """Reference ID    : CB00710F (203.0.113.15)
Stratum         : 3
Ref time (UTC)  : Fri Jan 27 09:49:17 2017
System time     : 0.000006523 seconds slow of NTP time
Root delay      : 0.041 seconds
Leap status     : {}
"""
SOURCE = "^,{},{},2,6,{},23,0.000006523,0.000006523,0.000412000\n"
MESSAGE = "NTPMessage={ Leap=0, Version=4, Mode=4, Stratum=2, Precision=-24, Ignored=no, PacketCount=1, Jitter=0 }\n"
SERVERS = ["ntp1.example", "192.0.2.5"]
OURS = (
    "# Begin of rackready (role base): base_ntp_servers\n"
    "server ntp1.example iburst\nserver 192.0.2.5 iburst\n# End of rackready\n"
)


class Node:
    """A node with systemd; ``leaps``: what the daemon says, one answer after the other, then the last one again."""

    def __init__(self, root: Path, name: str = "etc/chrony/chrony.conf", settings: str = DEBIAN) -> None:
        self.root, self.ran = root, [""]
        self.on, self.leaps = True, ["Normal"]
        self.sources = SOURCE.format("*", "ntp1.example", 377) + SOURCE.format("+", "192.0.2.5", 377)
        self.server = f"ServerName=ntp1.example\n{MESSAGE}"
        self.started = time.monotonic()
        self.fails: dict[str, Done] = {}
        self.file = root / name
        self.file.parent.mkdir(parents=True)
        self.file.write_text(settings)
        self.ran.clear()

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        told = {"chronyc -c": self.sources, "timedatectl show-timesync": self.server}
        told["systemctl show"] = f"{self.started * 1e6:.0f}\n"
        if (words := " ".join(argv[:2])) in told:
            return Done(0, told[words])
        if argv[0] == "chronyc":
            leap = self.leaps.pop(0) if self.leaps[1:] else self.leaps[0]
            return Done(0, TRACKING.format(leap)) if leap else Done(1, "506 Cannot talk to daemon\n")
        if argv[0] == "timedatectl":
            return Done(0, f"{self.leaps[0]}\n")
        if argv[1].startswith("is-"):
            return Done(0 if self.on else 3, "")
        self.ran.append(line)
        self.on = True
        self.started = time.monotonic() if argv[1] == "restart" else self.started
        return self.fails.get(line, Done(0, ""))

    def time(self) -> TimeSync:
        return TimeSync(self, self.root, wait_s=3.0, sleep=lambda _: None)


@pytest.mark.parametrize("settings", [DEBIAN, RHEL])
def test_the_sites_servers_replace_the_systems_and_leave_everything_else(settings: str) -> None:
    after = chrony_text(settings, SERVERS)
    assert after == settings.replace("\npool ", "\n#rackready: pool ") + OURS
    assert chrony_text(after, SERVERS) == after
    assert chrony_text(after, ["192.0.2.6"]).endswith("server 192.0.2.6 iburst\n# End of rackready\n")
    assert chrony_text(after, []) == settings


BEGIN, END = OURS.splitlines()[0], OURS.splitlines()[-1]


@pytest.mark.parametrize(
    "text", ["", "keyfile /etc/chrony.keys", "pool a\r\n\x0bdriftfile x\r\n\n", f"a\n{BEGIN}\nb\n"]
)
def test_without_servers_and_block_the_text_stays_byte_for_byte(text: str) -> None:
    assert chrony_text(text, []) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{BEGIN}\nserver old iburst\nallow all\n", f"{BEGIN}\n#rackready: server old iburst\nallow all\n"),
        (f"allow all\n{END}\nbindcmdaddress /\n", f"allow all\n{END}\nbindcmdaddress /\n"),
        (f"{BEGIN}\nallow all\n{OURS}leapsectz right/UTC\n", f"{BEGIN}\nallow all\nleapsectz right/UTC\n"),
        ("pool a\r\nallow all", "#rackready: pool a\r\nallow all\n"),
        (OURS.replace("\n", "\r\n"), ""),
    ],
)  # fmt: skip
def test_only_a_whole_block_is_replaced(before: str, after: str) -> None:
    assert chrony_text(before, SERVERS) == after + OURS
    assert chrony_text(after + OURS, SERVERS) == after + OURS


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_bytes(b"# M\xfcnchen\r\npool a\r\n")
    service = node.time()
    service.ensure(SERVERS)
    assert node.file.read_bytes() == b"# M\xfcnchen\r\n#rackready: pool a\r\n" + OURS.encode()
    assert service.diff[0]["before"] == "# M\ufffdnchen\r\npool a\r\n"
    assert node.time().ensure(SERVERS) == []
    node.time().ensure([])
    assert node.file.read_bytes() == b"# M\xfcnchen\r\npool a\r\n"


@pytest.mark.parametrize(
    ("name", "settings", "unit"),
    [("etc/chrony/chrony.conf", DEBIAN, "chrony.service"), ("etc/chrony.conf", RHEL, "chronyd.service")],
)
def test_the_service_restarts_once_and_a_dry_run_changes_nothing(
    tmp_path: Path, name: str, settings: str, unit: str
) -> None:
    node = Node(tmp_path, name, settings)
    dry = node.time()
    assert [item.name for item in dry.ensure(SERVERS, check=True)] == [f"/{name}"]
    assert dry.diff == [
        {"before_header": f"/{name}", "after_header": f"/{name}", "before": settings}
        | {"after": chrony_text(settings, SERVERS)}
    ]
    assert (node.file.read_text(), node.ran) == (settings, [])
    assert [item.name for item in node.time().ensure(SERVERS)] == [f"/{name}"]
    assert node.time().ensure(SERVERS) == []
    assert node.ran == [f"systemctl enable {unit}", f"systemctl restart {unit}"]
    assert [item.name for item in node.time().ensure([])] == [f"/{name}"]
    assert node.file.read_text() == settings


def test_a_service_that_does_not_run_is_started_and_not_restarted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.on = False
    found = node.time().ensure([])
    assert [str(item) for item in found] == [
        "chrony.service disabled, wanted enabled",
        "chrony.service inactive, wanted active",
    ]
    assert node.ran == ["systemctl enable chrony.service", "systemctl start chrony.service"]


def test_first_answers_are_waited_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.leaps = ["", "Not synchronised", "Normal"]
    assert len(node.time().ensure(SERVERS)) == 1


@pytest.mark.parametrize(
    ("leap", "said"), [("Not synchronised", "Not synchronised"), ("", "506 Cannot talk to daemon")]
)
def test_servers_that_the_clock_does_not_follow_are_refused(tmp_path: Path, leap: str, said: str) -> None:
    node = Node(tmp_path)
    node.leaps = [leap]
    with pytest.raises(NodeProblem) as caught:
        node.time().ensure(SERVERS)
    assert str(caught.value) == (
        f"Expected: a clock that follows one of ntp1.example, 192.0.2.5 within 3 s Actual: chronyc tracking: {said}. "
        "Check on the node that they answer (`chronyc -n sources`, `timedatectl timesync-status`) "
        "and that UDP port 123 is open."
    )


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (SOURCE.format("*", "203.0.113.15", 377) + SOURCE.format("-", "ntp1.example", 377),
         "^* 203.0.113.15 reach 377, ^- ntp1.example reach 377"),
        (SOURCE.format("*", "192.0.2.5", 0), "^* 192.0.2.5 reach 0"),
        (SOURCE.format("*", "ntp1.example", 377).replace("^", "="), "=* ntp1.example reach 377"),
        ("506 Cannot talk to daemon\n", "506 Cannot talk to daemon"),
        ("", "no answer"),
    ],
)  # fmt: skip
def test_a_clock_that_follows_another_server_is_refused(tmp_path: Path, sources: str, said: str) -> None:
    node = Node(tmp_path)
    node.sources = sources
    with pytest.raises(NodeProblem) as caught:
        node.time().ensure(SERVERS)
    assert caught.value.check["expected"] == "a clock that follows one of ntp1.example, 192.0.2.5 within 3 s"
    assert caught.value.check["actual"] == f"chronyc sources: {said}"


def test_a_combined_server_counts_and_addresses_have_many_forms(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sources = SOURCE.format("+", "2001:db8::5", 1)
    assert len(node.time().ensure(["2001:DB8:0::5"])) == 1


def test_a_run_that_was_killed_before_the_restart_is_made_up_for_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_text(chrony_text(DEBIAN, SERVERS))
    node.started -= 60
    late = ["chrony.service started before, wanted started after a change of /etc/chrony/chrony.conf"]
    assert [str(item) for item in node.time().ensure(SERVERS, check=True)] == late
    assert node.ran == []
    assert [str(item) for item in node.time().ensure(SERVERS)] == late
    assert node.ran == ["systemctl enable chrony.service", "systemctl restart chrony.service"]
    assert node.time().ensure(SERVERS) == []


def test_a_file_from_the_future_restarts_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    os.utime(node.file, (0, time.time() + 3600))
    assert node.time().ensure([]) == []


def test_a_drop_in_that_was_removed_before_the_restart_counts_as_well(tmp_path: Path) -> None:
    node = Node(tmp_path, TIMESYNCD, "")
    node.leaps, node.started = ["yes"], node.started - 60
    folder = (tmp_path / DROP_IN[1:]).parent
    folder.mkdir(parents=True)
    assert [item.kind for item in node.time().ensure([])] == ["unit"]
    os.utime(folder, (0, 0))
    node.started -= 60
    assert node.time().ensure([]) == []


def test_without_servers_of_the_site_such_a_clock_is_a_note(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.leaps = ["Not synchronised"]
    service = node.time()
    assert service.ensure([]) == []
    assert service.notes == [
        "the clock follows no time server: chronyc tracking: Not synchronised; base_ntp_servers declares the site's"
    ]


def test_a_service_that_does_not_start_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.fails["systemctl restart chrony.service"] = Done(1, "Job for chrony.service failed.\n")
    with pytest.raises(NodeProblem) as caught:
        node.time().ensure(SERVERS)
    assert str(caught.value) == (
        "Expected: `systemctl restart chrony.service` succeeds Actual: exit 1: Job for chrony.service failed. "
        "Run `systemctl status chrony.service` on the node: it shows why."
    )


def test_timesyncd_gets_a_drop_in_where_chrony_is_not_installed(tmp_path: Path) -> None:
    node = Node(tmp_path, TIMESYNCD, "")
    node.leaps = ["yes"]
    assert [item.name for item in node.time().ensure(SERVERS)] == [DROP_IN]
    assert (tmp_path / DROP_IN[1:]).read_text().endswith("[Time]\nNTP=ntp1.example 192.0.2.5\n")
    assert node.ran[-1] == "systemctl restart systemd-timesyncd.service"
    assert [str(item.expected) for item in node.time().ensure([])] == ["absent"]
    assert not (tmp_path / DROP_IN[1:]).exists()
    assert node.time().ensure([]) == []
    node.leaps = ["no"]
    with pytest.raises(NodeProblem, match="Actual: timedatectl: NTPSynchronized=no"):
        node.time().ensure(SERVERS)


@pytest.mark.parametrize(
    ("said", "actual"),
    [
        ("ServerName=ntp.ubuntu.com\n" + MESSAGE, "timedatectl: ServerName=ntp.ubuntu.com"),
        ("ServerName=ntp1.example\n", "timedatectl: no answer of ntp1.example"),
        ("", "timedatectl: ServerName=no answer"),
    ],
)
def test_timesyncd_must_follow_a_declared_server(tmp_path: Path, said: str, actual: str) -> None:
    node = Node(tmp_path, TIMESYNCD, "")
    node.leaps, node.server = ["yes"], said
    with pytest.raises(NodeProblem) as caught:
        node.time().ensure(SERVERS)
    assert caught.value.check["actual"] == actual


def test_a_node_without_a_time_service(tmp_path: Path) -> None:
    node = Node(tmp_path, "etc/ntp.conf")
    for servers, check in (([], False), (SERVERS, True)):
        service = node.time()
        assert service.ensure(servers, check=check) == []
        assert service.notes == ["no time service on the node: neither chrony nor systemd-timesyncd"]
    with pytest.raises(NodeProblem) as caught:
        node.time().ensure(SERVERS)
    assert str(caught.value) == (
        "Expected: chrony or systemd-timesyncd, which follows base_ntp_servers Actual: none of both. "
        "Keep chrony in base_packages, then run again."
    )
