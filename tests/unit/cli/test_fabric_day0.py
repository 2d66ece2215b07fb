"""`rackready fabric --day0 SWITCH`: the file that a new switch fetches, run here with stand-ins for its programs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign import switch_day0
from rackready.cli.fabric import show_day0
from rackready.cli.output import Format
from rackready.design.site import load_site
from rackready.design.yaml import read_yaml
from rackready.model.site import Site
from rackready_sim.hardware import build_switch_state
from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.switch import schema
from tests.unit.cli.keys import put_key
from tests.unit.design.written import parse

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[3]
GOLDENS = ROOT / "tests/golden"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfTheController"
_TEN = "10.20.1.21"


def two_tier(tmp_path: Path, **switch: object) -> Site:
    """The site of the golden files, with a management network; ``switch`` changes its first switch."""
    document = read_yaml(GOLDENS / "sites/two_tier.yml")
    document["networks"]["oob"] = {"pool": "10.20.0.0/16", "per_rack": 24}
    document["access"]["private_key"] = str(tmp_path / "keys/id")
    document["switches"][0] |= {"address": _TEN, **switch}
    document["fabric"]["switch_mtu"] = 9214  # what every system takes
    return parse(document)


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    class Fixed:
        def get_name(self) -> str:
            return KEY.split(maxsplit=1)[0]

        def get_base64(self) -> str:
            return KEY.split()[1]

    monkeypatch.setattr(switch_day0, "read_private_key", lambda *_: Fixed())
    return tmp_path


@pytest.mark.parametrize("os_name", ["cumulus_nvue", "sonic"])
def test_the_file_is_as_reviewed(key: Path, os_name: str) -> None:
    text = switch_day0.switch_day0(two_tier(key, os=os_name, username=None), "leaf-su001-01")
    golden = GOLDENS / os_name / "leaf-su001-01-day0.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def run(text: str, tmp_path: Path, old: str = "") -> tuple[int, list[str], Path]:
    """Run a day-0 file: its exit code, what it ran, and the user's home. ``old``: words that `nv` refuses."""
    tools, home, log = tmp_path / "tools", tmp_path / "home", tmp_path / "ran"
    tools.mkdir()
    home.mkdir()
    stand_ins = {
        "getent": f"echo user:x:1000:1000::{home}:/bin/bash",
        "chown": "exit 0",
        "install": f"mkdir -p {home}/.ssh",
        "nv": f'echo "nv $*" >>{log}; case "$*" in {old or "-"}) exit 1;; esac',
        "config": f'echo "config $*" >>{log}',
    }
    for name, body in stand_ins.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    script = text.replace("/var/log/autoprovision", str(tmp_path / "log"))
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["bash"], input=script, text=True, env=env, check=False, capture_output=True)
    return done.returncode, log.read_text().splitlines(), home


def test_the_script_does_what_the_switch_needs(key: Path) -> None:
    text = switch_day0.switch_day0(two_tier(key), "leaf-su001-01")
    assert "CUMULUS-AUTOPROVISIONING" in text.splitlines()[1]
    code, ran, home = run(text, key)
    assert code == 0
    assert ran == [
        "nv set system hostname leaf-su001-01",
        "nv set interface eth0 ipv4 address 10.20.1.21/24",
        "nv set interface eth0 ipv4 dhcp-client state disabled",
        "nv set interface eth0 ipv4 gateway 10.20.1.1",
        "nv config apply -y",
        "nv config save",
    ]
    assert (home / ".ssh/authorized_keys").read_text() == f"{KEY}\n"


def test_an_older_release_gets_its_own_words(key: Path) -> None:
    text = switch_day0.switch_day0(two_tier(key), "leaf-su001-01")
    code, ran, _ = run(text, key, old='"set interface eth0 ipv4"*')
    assert code == 0
    assert ran[1:5] == [
        "nv set interface eth0 ipv4 address 10.20.1.21/24",
        "nv set interface eth0 ip address 10.20.1.21/24",
        "nv unset interface eth0 ip address dhcp",
        "nv set interface eth0 ip gateway 10.20.1.1",
    ]


def test_a_command_that_fails_fails_the_script(key: Path) -> None:
    text = switch_day0.switch_day0(two_tier(key), "leaf-su001-01")
    code, ran, _ = run(text, key, old='"config apply"*')
    assert code != 0
    assert "nv config save" not in ran


def test_the_simulated_switch_takes_every_setting(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "ROOT", key)
    (key / "opt/hw").mkdir(parents=True)
    state: dict[str, Any] = build_switch_state(load_site("sim-spine"), "leaf-su001-01")
    (key / "opt/hw/state.json").write_text(json.dumps(state))
    _, ran, _ = run(switch_day0.switch_day0(two_tier(key), "leaf-su001-01"), key)
    for line in ran:
        words = tuple(shlex.split(line))
        if words[1] == "set":
            schema.check(words[2:])


def test_sonic_has_its_own_commands(key: Path) -> None:
    code, ran, _ = run(switch_day0.switch_day0(two_tier(key, os="sonic", username=None), "leaf-su001-01"), key)
    assert code == 0
    assert ran == [
        "config hostname leaf-su001-01",
        "config interface ip add eth0 10.20.1.21/24 10.20.1.1",
        "config save -y",
    ]


@pytest.mark.parametrize(
    ("switch", "said"),
    [
        (
            {"os": "arista_eos", "username": None, "model": "dcs_7060x6_64pe"},
            (
                "leaf-su001-01: rackready writes no day-0 file for arista_eos. "
                "Give it 10.20.1.21/24, gateway 10.20.1.1 and a user at its console."
            ),
        ),
        (
            {"address": "192.0.2.21"},
            (
                "leaf-su001-01: 192.0.2.21: its subnet and gateway are not known - "
                "Expected: an address in the pool of networks.oob. "
                "Declare networks.oob, or set the address up by hand."
            ),
        ),
        (
            {"username": "operator"},
            (
                "leaf-su001-01: username: a new switch with cumulus_nvue has no such user - "
                "Expected: cumulus Actual: operator. "
                "Create the user by hand after day 0, or use the system's own."
            ),
        ),
    ],
    ids=["system", "subnet", "user"],
)
def test_what_is_not_known_is_refused(key: Path, switch: dict[str, object], said: str) -> None:
    with pytest.raises(Exception, match="leaf-su001-01") as caught:
        switch_day0.switch_day0(two_tier(key, **switch), "leaf-su001-01")
    assert str(caught.value) == said


def test_the_key_is_the_public_half_of_the_controllers(tmp_path: Path) -> None:
    put_key(tmp_path / "keys/id")
    (tmp_path / "keys/id").chmod(0o600)
    text = switch_day0.switch_day0(two_tier(tmp_path), "leaf-su001-01")
    printed = next(line for line in text.splitlines() if line.startswith("printf")).split("'")[3]
    made = subprocess.run(["ssh-keygen", "-y", "-f", tmp_path / "keys/id"], check=True, capture_output=True, text=True)
    assert made.stdout.split()[:2] == printed.split()


def test_json_has_the_file(key: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("rackready.design.site.load_site", lambda *_a, **_k: two_tier(key))
    show_day0("sim", "leaf-su001-01", Format.JSON)
    assert json.loads(capsys.readouterr().out)["file"].startswith("#!/bin/bash\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--day0", "leaf09"], "--day0 leaf09 - Expected: one of leaf01, leaf02."),
        (
            ["--day0", "leaf01", "--check"],
            "--day0: prints one switch and changes nothing - Expected: neither --limit nor --check.",
        ),
        (["--day0", "leaf01", "--show", "leaf01"], "--show and --day0 - Expected: one of them."),
    ],
    ids=["switch", "check", "show"],
)
def test_what_it_cannot_print_is_refused(call: Call, words: list[str], text: str) -> None:
    code, _, err = call("fabric", *words)
    assert code == 2
    assert text in err
