"""The script that makes an interface lossless, on a NIC that forgets everything, by both congestion-control paths."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import rail_ping
from rackready.ondevice.roce import CHANGES, Roce, parse_qos, verified

CONFIG = {
    "netdev": "enp24s0np0", "rdma_device": "mlx5_0", "pci": "0000:18:00.0", "address": "192.168.1.11/24", "mtu": 9000,
    "dscp": 26, "priority": 3, "cnp_dscp": 48, "cnp_priority": 6, "tos": 106,
}  # fmt: skip

# mlnx_qos of MLNX_OFED 5.8, as att/netarbiter recorded it (mapping and tc rows shortened).
QOS = """DCBX mode: OS controlled
Priority trust state: {trust}
{mapping}Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     {pfc}
\tbuffer      0   0   0   1   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
"""
MAPPING = (
    "dscp2prio mapping:\n"
    + "".join(f"\tprio:{p} dscp:{','.join(f'{d:02d}' for d in range(8 * p + 7, 8 * p - 1, -1))},\n" for p in range(8))
    + "default priority:\n"
)


@dataclass
class Nic:
    """A NIC after power-on, with its sysfs below ``root``."""

    root: Path
    ofed: bool = False
    trust: str = "pcp"
    pfc: list[str] = field(default_factory=lambda: ["0"] * 8)
    mode: int = 1
    tos: int = 0
    pause: str = "on"
    mtu: int = 1500
    addresses: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    refuses: str = ""
    log: list[str] = field(default_factory=lambda: ["[  100.000001] Linux version 6.1"])

    def __post_init__(self) -> None:
        net = self.root / "sys/class/net/enp24s0np0"
        paths = ["sys/class/infiniband/mlx5_0/tc/1/traffic_class", "sys/class/net/enp24s0np0/mtu"]
        cc = "sys/kernel/debug/mlx5/0000:18:00.0/cc_params"
        base = "sys/class/net/enp24s0np0/ecn"
        paths += (
            [
                f"{base}/{item}"
                for item in ("roce_np/enable/3", "roce_rp/enable/3", "roce_np/cnp_dscp", "roce_np/cnp_802p_prio")
            ]
            if self.ofed
            else []
        )
        paths += [] if self.ofed else [f"{cc}/np_cnp_dscp", f"{cc}/np_cnp_prio"]
        for path in paths:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text("0\n")
        (net / "mtu").write_text("1500\n")
        for name in ("net/enp24s0np0", "infiniband/mlx5_0"):
            (self.root / "sys/bus/pci/devices/0000:18:00.0" / name).mkdir(parents=True)

    def run(self, *argv: str) -> tuple[int, str]:
        self.sent.append(" ".join(argv))
        if self.refuses and " ".join(argv).startswith(self.refuses):
            return 1, "Operation not permitted\n"
        return getattr(self, f"_{argv[0]}")(list(argv[1:]))

    def _ip(self, argv: list[str]) -> tuple[int, str]:
        if argv[0] == "link":
            (self.root / "sys/class/net/enp24s0np0/mtu").write_text(argv[argv.index("mtu") + 1])
        elif argv[0] == "address":
            self.addresses = [argv[2]]
        else:
            return 0, "".join(
                f"2: enp24s0np0    inet {item} scope global enp24s0np0\\       valid_lft forever\n"
                for item in self.addresses
            )
        return 0, ""

    def _mlnx_qos(self, argv: list[str]) -> tuple[int, str]:
        if "--trust" in argv:
            self.trust = argv[argv.index("--trust") + 1]
        if "--pfc" in argv:
            self.log += (
                ["[ 9000.100000] Link down", "[ 9000.200000] Link up"] if argv[-1].split(",") != self.pfc else []
            )
            self.pfc = argv[argv.index("--pfc") + 1].split(",")
        return 0, QOS.format(
            trust=self.trust, mapping=MAPPING if self.trust == "dscp" else "", pfc="   ".join(self.pfc)
        )

    def _ethtool(self, argv: list[str]) -> tuple[int, str]:
        if argv[0] == "-A":
            self.pause = "off"
        return 0, f"Pause parameters for enp24s0np0:\nAutonegotiate:\toff\nRX:\t\t{self.pause}\nTX:\t\t{self.pause}\n"

    def _dmesg(self, _argv: list[str]) -> tuple[int, str]:
        return 0, "\n".join(self.log)

    def _modprobe(self, _argv: list[str]) -> tuple[int, str]:
        return 0, ""

    def _cma_roce_mode(self, argv: list[str]) -> tuple[int, str]:
        self.mode = int(argv[-1]) if "-m" in argv else self.mode
        return 0, {1: "IB/RoCE v1\n", 2: "RoCE v2\n"}[self.mode]

    def _cma_roce_tos(self, argv: list[str]) -> tuple[int, str]:
        self.tos = int(argv[-1]) if "-t" in argv else self.tos
        return 0, f"{self.tos}\n"


@pytest.fixture(params=[True, False], ids=["ofed", "inbox"])
def nic(tmp_path: Path, request: pytest.FixtureRequest) -> Nic:
    return Nic(tmp_path, ofed=request.param)


def _roce(nic: Nic) -> Roce:
    return Roce(CONFIG, nic.run, nic.root)


def test_a_fresh_interface_is_brought_to_everything(nic: Nic) -> None:
    wrong = {problem["what"] for problem in _roce(nic).problems()}
    assert {
        "MTU",
        "address",
        "trust",
        "PFC priorities",
        "RoCE version of rdma_cm",
        "ToS of rdma_cm",
        "ToS of verbs",
        "global pause",
    } <= wrong
    assert _roce(nic).apply() == []
    assert _roce(nic).problems() == []


def test_commands_are_those_of_the_vendor(nic: Nic) -> None:
    _roce(nic).apply()
    for wanted in (
        "mlnx_qos -i enp24s0np0 --trust dscp --pfc 0,0,0,1,0,0,0,0",
        "cma_roce_mode -d mlx5_0 -p 1 -m 2",
        "cma_roce_tos -d mlx5_0 -t 106",
        "ethtool -A enp24s0np0 rx off tx off",
    ):
        assert wanted in nic.sent
    assert (nic.root / "sys/class/infiniband/mlx5_0/tc/1/traffic_class").read_text() == "106\n"


def test_a_second_time_sets_no_flow_control_again(nic: Nic) -> None:
    _roce(nic).apply()
    nic.sent.clear()
    _roce(nic).apply()
    assert not [line for line in nic.sent if "--trust" in line or "--pfc" in line or "-A" in line]


def test_a_change_of_pfc_waits_for_the_link_and_is_recorded(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    carrier, record = nic.root / "sys/class/net/enp24s0np0/carrier", nic.root / CHANGES.lstrip("/") / "enp24s0np0"
    carrier.write_text("1\n")
    states, seconds = iter(["0\n", "0\n", "1\n", "1\n"]), list[float]()

    def sleep(length: float) -> None:
        carrier.write_text(next(states))
        seconds.append(length)

    monkeypatch.setattr("time.sleep", sleep)
    assert _roce(nic).apply() == []
    assert (record.read_text(), len(seconds)) == ("100.000001 9000.200000\n", 3)
    _roce(nic).apply()
    assert (record.read_text(), len(seconds)) == ("100.000001 9000.200000\n", 3), "nothing changed"
    nic.pfc = ["0"] * 8
    _roce(nic).apply()
    assert record.read_text() == "100.000001 9000.200000\n9000.200000 9000.200000\n"


def test_a_link_that_stays_down_is_said(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    (nic.root / "sys/class/net/enp24s0np0/carrier").write_text("1\n")
    clock = iter(range(0, 1000, 31))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("time.sleep", lambda _s: (nic.root / "sys/class/net/enp24s0np0/carrier").write_text("0\n"))
    assert _roce(nic).apply() == [
        (
            "link after `mlnx_qos -i enp24s0np0 --trust dscp --pfc 0,0,0,1,0,0,0,0` - Expected: up again within 60 s "
            "Actual: down"
        )
    ]


def test_a_port_without_a_link_waits_for_none(nic: Nic) -> None:
    assert _roce(nic).apply() == []
    assert not (nic.root / CHANGES.lstrip("/")).exists()


def test_ecn_is_reached_on_both_ways(nic: Nic) -> None:
    _roce(nic).apply()
    if nic.ofed:
        base = nic.root / "sys/class/net/enp24s0np0/ecn"
        assert [
            (base / item).read_text()
            for item in ("roce_np/enable/3", "roce_rp/enable/3", "roce_np/cnp_dscp", "roce_np/cnp_802p_prio")
        ] == [
            "1\n",
            "1\n",
            "48\n",
            "6\n",
        ]
    else:
        base = nic.root / "sys/kernel/debug/mlx5/0000:18:00.0/cc_params"
        assert [(base / item).read_text() for item in ("np_cnp_dscp", "np_cnp_prio")] == ["48\n", "6\n"]


def test_lost_pfc_is_seen(nic: Nic) -> None:
    _roce(nic).apply()
    nic.pfc = ["0"] * 8
    assert _roce(nic).problems() == [{"what": "PFC priorities", "expected": "3", "actual": "none"}]


def test_a_reading_asks_each_program_once_and_judges_what_it_says(nic: Nic) -> None:
    _roce(nic).apply()
    nic.pfc = ["0"] * 8
    nic.sent.clear()
    found = verified(CONFIG, nic.run, nic.root)
    assert found["problems"] == [{"what": "PFC priorities", "expected": "3", "actual": "none"}]
    assert (found["state"]["pfc"], found["state"]["trust"], found["state"]["cm_tos"]) == ([], "dscp", 106)
    assert len(set(nic.sent)) == len(nic.sent), "no question twice"
    assert sorted(line.split()[0] for line in nic.sent) == [
        "cma_roce_mode",
        "cma_roce_tos",
        *["ethtool"] * 3,
        "ip",
        "mlnx_qos",
    ]


def test_a_driver_without_a_class_for_all_programs_is_no_problem(tmp_path: Path) -> None:
    """The kernel's own driver: NCCL and perftest are given theirs."""
    nic = Nic(tmp_path)
    shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_0/tc")
    assert "ToS of verbs" not in {problem["what"] for problem in _roce(nic).problems()}
    assert _roce(nic).apply() == []
    assert _roce(nic).problems() == []
    assert _roce(nic).state()["traffic_class"] is None
    assert not (tmp_path / "sys/class/infiniband/mlx5_0/tc").exists()


def test_what_is_refused_is_said(nic: Nic) -> None:
    nic.refuses = "mlnx_qos -i enp24s0np0 --trust"
    assert _roce(nic).apply() == [
        (
            "`mlnx_qos -i enp24s0np0 --trust dscp --pfc 0,0,0,1,0,0,0,0` - Expected: success "
            "Actual: exit 1, Operation not permitted"
        )
    ]


def test_a_driver_without_congestion_control_is_not_called_good(tmp_path: Path) -> None:
    nic = Nic(tmp_path)
    for path in (tmp_path / "sys/kernel/debug/mlx5/0000:18:00.0/cc_params").iterdir():
        path.unlink()
    (tmp_path / "sys/kernel/debug/mlx5/0000:18:00.0/cc_params").rmdir()
    refused = _roce(nic).apply()
    assert len(refused) == 1
    assert refused[0].startswith("congestion control - Expected: ")
    assert "congestion control" in {problem["what"] for problem in _roce(nic).problems()}


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nic:
    """Return a NIC with the kernel's own driver, in a kernel that refuses its debugfs files to root, too."""
    nic, lockdown = Nic(tmp_path), tmp_path / "sys/kernel/security/lockdown"
    lockdown.parent.mkdir(parents=True)
    lockdown.write_text("none [integrity] confidentiality\n")
    opened = Path.open

    def refuse(self: Path, *words: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever open takes and returns
        if "cc_params" in self.parts:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return opened(self, *words, **options)

    monkeypatch.setattr(Path, "open", refuse)
    return nic


def test_what_a_locked_kernel_hides_is_unread_and_not_wrong(locked: Nic) -> None:
    assert _roce(locked).apply() == []
    found = verified(CONFIG, locked.run, locked.root)
    assert found["problems"] == []
    assert found["state"]["ecn"] is None
    assert found["state"]["unread"] == (
        "DSCP and priority of CNPs: kernel lockdown (integrity) refuses debugfs; use software.nic_stack: doca "
        "(docs/howto/nic-stack.md)"
    )


def test_files_that_nobody_locked_and_that_cannot_be_read_are_wrong(locked: Nic) -> None:
    (locked.root / "sys/kernel/security/lockdown").write_text("[none] integrity confidentiality\n")
    assert len([line for line in _roce(locked).apply() if "Operation not permitted" in line]) == 2
    state = _roce(locked).state()
    assert (state["ecn"], state["unread"]) == (None, "")
    assert {"np_cnp_dscp", "np_cnp_prio"} <= {Path(item["what"]).name for item in _roce(locked).problems()}


@pytest.mark.parametrize("ofed", [True, False])
def test_a_locked_kernel_whose_files_can_be_read_is_judged(tmp_path: Path, *, ofed: bool) -> None:
    nic, lockdown = Nic(tmp_path, ofed=ofed), tmp_path / "sys/kernel/security/lockdown"
    lockdown.parent.mkdir(parents=True)
    lockdown.write_text("none [integrity] confidentiality\n")
    assert len([item for item in _roce(nic).problems() if "cnp" in item["what"]]) == 2
    _roce(nic).apply()
    assert (_roce(nic).problems(), _roce(nic).state()["unread"]) == ([], "")


def test_a_missing_interface_is_waited_for_and_named(tmp_path: Path) -> None:
    nic = Nic(tmp_path)
    other = Roce({**CONFIG, "netdev": "enp99s0np0"}, nic.run, tmp_path)
    waited: list[float] = []
    assert other.wait(0, waited.append) == [
        f"{tmp_path}/sys/class/net/enp99s0np0/mtu - Expected: there within 0 s Actual: absent"
    ]
    assert _roce(nic).wait(0, waited.append) == []
    assert waited == []


@pytest.mark.parametrize("name", ["net/enp24s0np0", "infiniband/mlx5_0"])
def test_the_settings_never_go_to_another_card(tmp_path: Path, name: str) -> None:
    nic = Nic(tmp_path)
    own = tmp_path / "sys/bus/pci/devices/0000:18:00.0" / name
    other = tmp_path / "sys/bus/pci/devices/0000:40:00.0" / name
    other.parent.mkdir(parents=True)
    own.rename(other)
    said = f"{own} - Expected: there within 0 s Actual: absent"
    assert _roce(nic).wait(0) == [said]
    assert verified(CONFIG, nic.run, nic.root)["problems"][0]["actual"] == said
    other.rename(own)
    assert _roce(nic).wait(0) == []


def test_without_a_declared_address_both_are_of_one_card(tmp_path: Path) -> None:
    nic = Nic(tmp_path)
    device = tmp_path / "sys/class/infiniband/mlx5_0/device"
    device.symlink_to(tmp_path / "sys/bus/pci/devices/0000:18:00.0")
    roce = Roce({**CONFIG, "pci": ""}, nic.run, tmp_path)
    assert roce.wait(0) == []
    (device / "net/enp24s0np0").rename(device / "net/enp24s0np1")
    assert roce.wait(0) == [f"{device}/net/enp24s0np0 - Expected: there within 0 s Actual: absent"]


def test_qos_text_that_is_cut_off_reads_as_unknown() -> None:
    assert parse_qos("") == {"trust": "unknown", "pfc": [], "dscp_priority": {}}
    assert (
        parse_qos(QOS.format(trust="dscp", mapping=MAPPING, pfc="0   0   0   1   0   0   0   0"))["dscp_priority"][26]
        == 3
    )


REQUEST = {
    "mtu": 9000,
    "rails": [
        {
            "rail": 3,
            "netdev": "enp79s0np0",
            "peers": [{"node": "node02", "address": "192.168.3.12"}, {"node": "node03", "address": "192.168.3.13"}],
        }
    ],
}


@pytest.mark.parametrize(
    ("answers", "bad"),
    [
        ({(3, "node02"): "", (3, "node03"): ""}, False),
        ({(3, "node02"): "", (3, "node03"): "3 packets transmitted, 0 received, 100% packet loss"}, False),
        ({(3, "node02"): "100% packet loss", (3, "node03"): "100% packet loss"}, True),
    ],
)
def test_a_rail_that_reaches_nobody_is_bad(answers: dict[tuple[int, str], str], *, bad: bool) -> None:
    found = rail_ping.problems(REQUEST, answers)
    assert bool(found) is bad
    if bad:
        assert found == [
            {
                "what": "rail 3 (enp79s0np0)",
                "expected": "an answer to 9000 byte packets from node02 or node03",
                "actual": "100% packet loss",
            }
        ]


def test_a_rail_without_a_peer_is_not_measured_and_said_to_be_so() -> None:
    request = {"mtu": 9000, "rails": [{"rail": 1, "netdev": "x", "peers": []}, *REQUEST["rails"]]}  # type: ignore[misc]
    assert rail_ping.document(request, []) == {
        "format": "rackready/rail-ping/v1",
        "problems": [],
        "measured": [3],
        "unmeasured": ["rail 1: no other node in this run to reach"],
        "complete": True,
    }


def test_the_state_has_what_the_other_end_is_compared_with(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    _roce(nic).apply()
    address = CONFIG["address"].partition("/")[0]
    mapped = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))
    port = nic.root / "sys/class/infiniband/mlx5_0/ports/1"
    for index, gid, kind in ((0, "fe80::1", "RoCE v2"), (2, mapped, "IB/RoCE v1"), (3, mapped, "RoCE v2")):
        for place, text in ((port / "gids", gid), (port / "gid_attrs/types", kind)):
            place.mkdir(parents=True, exist_ok=True)
            (place / str(index)).write_text(f"{text}\n")
    said = {"--show-fec": "FEC parameters for enp24s0np0:\nConfigured FEC encodings: Auto\nActive FEC encoding: RS\n"}

    def ethtool(argv: list[str]) -> tuple[int, str]:
        return 0, said.get(argv[0], "Settings for enp24s0np0:\n\tSpeed: 400000Mb/s\n")

    monkeypatch.setattr(nic, "_ethtool", ethtool, raising=False)
    state = _roce(nic).state()
    assert (state["ecn"], state["rate_gbps"], state["fec"]) == (True, 400, "rs")
    assert (state["gid_types"], state["gid_index"]) == (["IB/RoCE v1", "RoCE v2"], 3)
    (port / "gid_attrs/types/3").write_text("\n")
    said["--show-fec"] = "netlink error: Operation not supported\n"
    state = _roce(nic).state()
    assert (state["gid_index"], state["fec"]) == (None, None)


def test_ecn_that_is_off_on_one_side_is_off(tmp_path: Path) -> None:
    nic = Nic(tmp_path, ofed=True)
    _roce(nic).apply()
    (tmp_path / "sys/class/net/enp24s0np0/ecn/roce_rp/enable/3").write_text("0\n")
    assert _roce(nic).state()["ecn"] is False
