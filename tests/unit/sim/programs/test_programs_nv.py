from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from rackready.design.site import load_site
from rackready.drivers.switch.nvue_text import document, expand_commands
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.switch import apply, nv, revisions, schema

Settings = set[tuple[str, ...]]


class Switch:
    """One simulated switch below a temporary root; ``real`` is what was last brought to its ports."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.real: Settings = set()

    def nv(self, line: str, user: str = "cumulus") -> str:
        self.capsys.readouterr()
        assert nv.run(line.split(), user) == 0
        return self.capsys.readouterr().out

    def refused(self, line: str) -> str:
        with pytest.raises((nv.NvError, schema.SchemaError)) as caught:
            nv.run(line.split(), "cumulus")
        return str(caught.value)


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Switch:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "opt/hw").mkdir(parents=True)
    (tmp_path / "opt/hw/state.json").write_text(json.dumps(build_switch_state(load_site("sim"), "leaf01")))
    made = Switch(capsys)

    def bring(settings: Settings) -> None:
        made.real = set(settings)

    monkeypatch.setattr(apply, "bring", bring)
    monkeypatch.setattr(
        apply, "links", lambda: {"swp1": {"ifname": "swp1", "operstate": "UP", "mtu": 9216, "ifindex": 7}}
    )
    return made


def test_a_patch_loads_what_the_commands_of_it_would(switch: Switch, tmp_path: Path) -> None:
    lines = [
        "set interface swp1,swp3 link mtu 9216",
        "set interface swp1 link state up",
        "set interface swp1 bridge domain br_default access 901",
        "set bridge domain br_default type vlan-aware",
        "set bridge domain br_default vlan 901,902",
        "set qos roce enable on",
    ]
    for line in lines:
        switch.nv(line)
    shown = switch.nv("config diff -o commands")
    switch.nv("config detach")
    (tmp_path / "patch.yaml").write_text(document(expand_commands("\n".join(f"nv {line}" for line in lines))))
    switch.nv(f"config patch {tmp_path}/patch.yaml")
    assert switch.nv("config diff -o commands") == shown
    assert switch.real == set()


def test_a_patch_adds_to_the_candidate_and_one_that_is_wrong_leaves_it(switch: Switch, tmp_path: Path) -> None:
    switch.nv("set system hostname leaf01")
    (tmp_path / "good.yaml").write_text("- set:\n    qos:\n      roce:\n        enable: 'on'\n")
    (tmp_path / "bad.yaml").write_text("- set:\n    interface:\n      swp1:\n        link:\n          mtu: 20000\n")
    switch.nv(f"config patch {tmp_path}/good.yaml")
    assert switch.refused(f"config patch {tmp_path}/bad.yaml") == (
        "Error: '20000' is not a valid value for 'interface swp1 link mtu': an integer between 552 and 9216 is "
        "expected."
    )
    assert switch.refused("config patch /no/such.yaml") == "Error: No such file or directory: '/no/such.yaml'"
    assert switch.nv("config diff -o commands") == "nv set qos roce enable on\nnv set system hostname leaf01\n"


def test_nothing_happens_before_apply(switch: Switch) -> None:
    switch.nv("set interface swp1-2 link mtu 9216")
    assert switch.real == set()
    assert switch.nv("config show -o commands") == ""
    assert switch.nv("config diff -o commands") == "nv set interface swp1-2 link mtu 9216\n"
    assert switch.nv("config apply -y") == "applied [rev_id: 2]\n"
    assert switch.real == {("interface", "swp1", "link", "mtu", "9216"), ("interface", "swp2", "link", "mtu", "9216")}
    assert switch.nv("config apply -y") == "Warning: config apply executed with no config diff.\n"
    assert switch.nv("config diff") == ""


def test_a_value_replaces_the_value_before_it(switch: Switch) -> None:
    switch.nv("set interface swp1 bridge domain br_default access 901")
    switch.nv("config apply -y")
    switch.nv("set interface swp1 bridge domain br_default access 902")
    assert (
        switch.nv("config diff")
        == "- set:\n    interface:\n      swp1:\n        bridge:\n          domain:\n            br_default:\n     "
        "         access: 902\n"
    )
    switch.nv("config apply -y")
    assert apply.wanted(switch.real)["swp1"]["vlan"] == 902


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("set interface swp1 foo", "Error: Invalid Command: 'foo' is not one of ['bridge', 'description'"),
        ("set interface swp1 link mtu 10000", "an integer between 552 and 9216 is expected"),
        ("set interface swp1 link mtu", "Error: Incomplete Command"),
        ("set bridge domain br_default vlan 5000", "is not a valid VLAN"),
        ("set interface ethernet1 link state up", "is not a valid interface name"),
        ("set qos roce state enabled", "Error: Invalid Command: 'state' is not one of"),
        ("config nonsense", "Error: Invalid Command: 'nonsense' is not one of"),
        ("config apply --confirm-yes", "no configuration apply waits for confirmation"),
        ("config delete 9", "Error: Revision 9 was not found"),
        ("show nonsense", "Error: The requested item does not exist: 'nonsense'"),
    ],
)
def test_what_nvue_refuses(switch: Switch, line: str, words: str) -> None:
    assert words in switch.refused(line)


def test_a_port_that_the_platform_does_not_have_is_refused_at_apply(switch: Switch) -> None:
    switch.nv("set interface swp99 link state up")
    assert (
        switch.refused("config apply -y")
        == "Invalid config [rev_id: 2]\n  Error: interface swp99 does not exist on this platform"
    )
    assert switch.real == set()


def test_an_unconfirmed_change_is_taken_back_in_time(switch: Switch) -> None:
    switch.nv("set qos roce mode lossless")
    switch.nv("config apply -y --confirm 60s")
    assert json.loads(switch.nv("config revision -o json"))["2"]["state"] == "confirm"
    assert "waits for confirmation" in switch.refused("config apply -y")
    assert not apply.expire(time.time() + 59)
    assert apply.expire(time.time() + 61)
    assert switch.real == set()
    assert revisions.read().applied == "1"
    assert json.loads(switch.nv("config revision -o json"))["2"]["state"] == "reverted"


@pytest.mark.parametrize(("answer", "kept"), [("--confirm-yes", True), ("--confirm-no", False)])
def test_confirmation(switch: Switch, answer: str, kept: bool) -> None:  # noqa: FBT001 - a column of the table
    switch.nv("set qos roce mode lossless")
    switch.nv("config apply -y --confirm 60s")
    switch.nv(f"config apply {answer}")
    assert (switch.real == {("qos", "roce", "mode", "lossless")}) == kept
    assert not apply.expire(time.time() + 3600)


def test_confirm_times(switch: Switch) -> None:
    for text, seconds in (("", 600), ("90s", 90), ("5m", 300), ("1", 60), ("1h", 3600)):
        switch.nv(f"set system hostname leaf-{seconds}")
        assert f"within {seconds} seconds" in switch.nv(f"config apply -y --confirm {text}".strip())
        switch.nv("config apply --confirm-yes")


def test_power_off_before_confirmation_loses_the_change(switch: Switch) -> None:
    switch.nv("set qos roce mode lossless")
    switch.nv("config apply -y")
    revisions.boot()
    switch.nv("set qos roce mode lossy")
    switch.nv("config apply -y --confirm 60s")
    paths.at("/run/nvue-booted").unlink()
    apply.main([])
    assert switch.real == {("qos", "roce", "mode", "lossless")}
    assert switch.nv("config show -o commands") == "nv set qos roce mode lossless\n"


def test_candidates_belong_to_users(switch: Switch) -> None:
    switch.nv("set interface swp1 description maria", user="maria")
    switch.nv("set qos roce mode lossless")
    found = json.loads(switch.nv("config revision -o json"))
    assert [(found[name]["user"], found[name]["state"]) for name in "23"] == [
        ("maria", "pending"),
        ("cumulus", "pending"),
    ]
    switch.nv("config apply -y")
    assert switch.real == {("qos", "roce", "mode", "lossless")}
    assert switch.nv("config show -r 2 -o commands") == "nv set interface swp1 description maria\n"
    switch.nv("config delete 2")
    assert "2" not in json.loads(switch.nv("config revision -o json"))


def test_unset_detach_and_going_back_to_a_revision(switch: Switch) -> None:
    switch.nv("set interface swp1-4 link mtu 9216")
    switch.nv("config apply -y")
    switch.nv("unset interface swp2-3")
    switch.nv("config apply -y")
    assert switch.nv("config show -o commands") == "nv set interface swp1,4 link mtu 9216\n"
    switch.nv("set qos roce mode lossy")
    switch.nv("config detach")
    assert switch.nv("config diff") == ""
    switch.nv("config apply 2 -y")
    assert switch.nv("config show -o commands") == "nv set interface swp1-4 link mtu 9216\n"


def test_lists_name_their_stem_once_and_are_taken_back() -> None:
    """As Cumulus Linux 5.15 prints them: `interface swp1-2,32 type swp`, `interface vlan200,300 type svi`."""
    lines = [
        "nv set bridge domain br_default vlan 901,903-904",
        "nv set interface swp1-2,32 type swp",
        "nv set interface vlan200,300 type svi",
        "nv set vrf default router bgp neighbor 10.0.0.1 type numbered",
        "nv set vrf default router bgp neighbor 10.0.0.3 type numbered",
        "nv set vrf default router bgp neighbor swp5,swp7s0-1,swp9s0 type unnumbered",
    ]
    singles = {single for line in lines for single in schema.expand(tuple(line.split()[2:]))}
    assert len(singles) == 14
    assert schema.compress(singles) == lines
    assert {words[2:] for words in expand_commands("\n".join(lines))} == singles


def test_a_vlan_with_a_vni_is_shown_once() -> None:
    """As Cumulus Linux 5.15 prints it."""
    bridge = ("bridge", "domain", "br_default", "vlan")
    shown = schema.compress({(*bridge, "10"), (*bridge, "20"), (*bridge, "20", "vni", "20")})
    assert shown == ["nv set bridge domain br_default vlan 10", "nv set bridge domain br_default vlan 20 vni 20"]


def test_a_banner_of_several_lines_is_shown_and_taken_back(switch: Switch, tmp_path: Path) -> None:
    banner = "####\n#  You're logged in to: leaf01\n####\n"
    assert nv.run(["set", "system", "message", "post-login", banner], "cumulus") == 0
    switch.nv("set interface swp1 link mtu 9216")
    switch.nv("config apply -y")
    before = set(switch.real)
    shown = switch.nv("config show -o commands")
    assert "post-login '####\n#  You'\"'\"'re logged in to: leaf01\n####\n'\n" in shown
    assert {words[2:] for words in expand_commands(shown)} == before
    kept = tmp_path / "kept"
    kept.write_text(shown)
    switch.nv("unset system")
    switch.nv("config apply -y")
    switch.nv(f"config replace {kept}")
    switch.nv("config apply -y")
    assert switch.real == before


@pytest.mark.parametrize("layout", ["yaml", "json", "commands"])
def test_a_shown_configuration_can_replace_another(switch: Switch, tmp_path: Path, layout: str) -> None:
    for line in (
        "set interface swp1-3 link mtu 9216",
        "set bridge domain br_default vlan 901-904",
        "set qos roce enable on",
    ):
        switch.nv(line)
    switch.nv("config apply -y")
    before = set(switch.real)
    kept = tmp_path / "kept"
    kept.write_text(switch.nv(f"config show -o {layout}"))
    switch.nv("unset interface")
    switch.nv("set qos roce mode lossy")
    switch.nv("config apply -y")
    switch.nv(f"config replace {kept}")
    switch.nv("config apply -y")
    assert switch.real == before


def test_show(switch: Switch) -> None:
    switch.nv("set interface swp1 bridge domain br_default access 901")
    switch.nv("set qos roce enable on")
    switch.nv("config apply -y")
    ports = json.loads(switch.nv("show interface -o json"))
    assert ports["swp1"]["link"] | {"mac-address": ""} == {
        "admin-status": "up",
        "oper-status": "up",
        "mtu": 9216,
        "state": {"up": {}},
        "speed": "400G",
        "auto-negotiate": "on",
        "duplex": "full",
        "fec": "rs",
        "mac-address": "",
    }
    assert ports["swp64"]["link"]["admin-status"] == "down"
    roce = json.loads(switch.nv("show qos roce -o json"))
    assert (roce["enable"], roce["mode"], roce["pfc"]["pfc-priority"]) == ("on", "lossless", "3")
    assert json.loads(switch.nv("show system -o json"))["product-release"] == "5.13.1"
    assert "operational" in switch.nv("show platform")


def test_ports_are_brought_to_bridges_and_back(switch: Switch) -> None:
    assert switch.real == set()
    switch.nv("set interface swp1 bridge domain br_default access 901")
    switch.nv("config apply -y")
    new = {"swp1": {"ifname": "swp1", "mtu": 1500, "flags": []}}
    commands = [
        "link add br901 type bridge mcast_snooping 0",
        "link set swp1 mtu 9216",
        "link set swp1 master br901",
        "link set swp1 up",
        "link set br901 up",
    ]
    assert apply.plan(switch.real, new) == commands
    have = {
        "swp1": {"ifname": "swp1", "mtu": 9216, "flags": ["UP"], "master": "br901"},
        "br901": {"ifname": "br901", "flags": ["UP"]},
    }
    assert apply.plan(switch.real, have) == ["link set br901 up"]
    assert apply.plan(set(), have) == [
        "link set swp1 mtu 1500",
        "link set swp1 nomaster",
        "link set swp1 down",
        "link del br901",
    ]


def test_a_users_hash_is_applied_hidden_and_checked(
    switch: Switch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def chpasswd(argv: list[str], *, input: str, **_rest: object) -> None:  # noqa: A002 - subprocess' own name
        given.append(f"{' '.join(argv)} {input}")

    monkeypatch.setattr(apply.subprocess, "run", chpasswd)
    hashed = "$6$abcdefgh$" + "x" * 86
    file = tmp_path / "user.yaml"
    tree = {"system": {"aaa": {"user": {"cumulus": {"hashed-password": hashed}}}}}
    file.write_text(yaml.safe_dump([{"set": tree}]))
    switch.nv(f"config patch {file}")
    assert hashed not in switch.nv("config diff")
    switch.nv("config apply -y")
    for line in ("config show", "config show -o commands", "config show -o json"):
        shown = switch.nv(line)
        assert "hashed-password" in shown
        assert hashed not in shown
    apply._passwords(switch.real)
    assert given == [f"/usr/sbin/chpasswd -e cumulus:{hashed}\n"]
    switch.nv("set system aaa user cumulus hashed-password *")
    switch.nv("config apply -y")
    apply._passwords(switch.real)
    assert len(given) == 1, "a star changes nothing"
    assert "a hashed password in Linux crypt format is expected" in switch.refused(
        "set system aaa user cumulus hashed-password plain"
    )
