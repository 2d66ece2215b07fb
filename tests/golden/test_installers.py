"""Golden files: what the installers of Ubuntu, Debian and RHEL are told. Programs that we did not write check each.

debconf-set-selections (Debian) reads the preseed files, ksvalidator (pykickstart) the kickstart files, cloud-init the
file of autoinstall and the user data in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from rackready.render.installer import installer_file
from tests.unit.design.installer_sites import PAIR, SINGLE, facts

HERE = Path(__file__).resolve().parent / "installers"
FILES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ubuntu2404-raid1": ("ubuntu2404", PAIR, {}),
    "ubuntu2204-single": ("ubuntu2204", SINGLE, {"provisioned": False, "proxy": None, "time_servers": []}),
    "debian12-raid1": ("debian12", PAIR, {}),
    "debian13-single": ("debian13", SINGLE, {"provisioned": False, "proxy": None, "time_servers": []}),
    "el9-raid1": ("el9", PAIR, {}),
    "el9-single": ("el9", SINGLE, {"provisioned": False, "proxy": None, "time_servers": []}),
}


def text_of(name: str) -> str:
    system, disks, more = FILES[name]
    return installer_file(facts(system, disks, **more))


def only(start: str) -> list[str]:
    return [name for name in FILES if name.startswith(start)]


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_as_reviewed(name: str) -> None:
    text, golden = text_of(name), HERE / f"{name}.txt"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_nothing_secret_is_in_the_file_of_a_node_that_is_not_provisioned(name: str) -> None:
    system, disks, _ = FILES[name]
    secret = ("TEST KEY", "token-of-node01")
    assert all(word in installer_file(facts(system, disks)) for word in secret)
    assert not any(word in installer_file(facts(system, disks, provisioned=False)) for word in secret)


def run(*argv: str | Path) -> str:
    """Run a validator; return what it says, empty for a valid file."""
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False, timeout=120)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"


# --- preseed ----------------------------------------------------------------------------------------------------

DEBCONF = pytest.mark.skipif(
    shutil.which("debconf-set-selections") is None, reason="debconf-set-selections: only Debian and Ubuntu have it"
)


@DEBCONF
@pytest.mark.parametrize("name", only("debian"))
def test_debconf_takes_the_preseed_file(name: str) -> None:
    assert run("debconf-set-selections", "--checkonly", HERE / f"{name}.txt") == ""


@DEBCONF
def test_debconf_refuses_a_line_that_is_no_selection(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text(text_of("debian12-raid1") + "d-i partman-auto/method\n", encoding="utf-8")
    assert "parse error" in run("debconf-set-selections", "--checkonly", bad)


def test_every_selection_of_a_preseed_file_is_one_line_without_a_backslash() -> None:
    joined = text_of("debian12-raid1").replace("\\\n", "")
    assert "\\" not in joined
    assert all(
        re.match(r"(#|\S+ \S+ (string|boolean|select|multiselect|password|note)\b)", line)
        for line in joined.splitlines()
    )


@pytest.mark.parametrize("name", only("debian"))
def test_security_updates_come_from_the_mirror_that_the_site_names(name: str) -> None:
    """apt-setup's own service takes them from http://HOST/debian-security (generators/91security)."""
    lines = text_of(name).splitlines()
    codename = {"debian12": "bookworm", "debian13": "trixie"}[name.partition("-")[0]]
    assert "d-i apt-setup/services-select multiselect updates" in lines
    assert (
        "d-i apt-setup/local0/repository string "
        f"http://192.0.2.2/security {codename}-security main contrib non-free-firmware"
    ) in lines


# --- kickstart --------------------------------------------------------------------------------------------------

_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
KSVALIDATOR = shutil.which("ksvalidator", path=_PATH) or ""
KICKSTART = pytest.mark.skipif(not KSVALIDATOR, reason="pykickstart is not installed: `make setup-dev` does")


def storage_of(text: str) -> str:
    """Return the commands that %pre writes, with names of disks."""
    found = re.search(r"<<RACKREADY\n(.*?)RACKREADY\n", text, re.DOTALL)
    assert found
    return found[1].replace("$1", "nvme0n1").replace("$2", "nvme1n1")


@KICKSTART
@pytest.mark.parametrize("name", only("el9"))
def test_pykickstart_takes_the_kickstart_file_with_its_storage(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    whole = tmp_path / "whole.ks"
    whole.write_text(text.replace("%include /tmp/rackready-disks.ks\n", storage_of(text)), encoding="utf-8")
    assert run(KSVALIDATOR, "--version", "RHEL9", HERE / f"{name}.txt") == ""
    assert run(KSVALIDATOR, "--version", "RHEL9", whole) == ""


@KICKSTART
@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("zerombr", "zerombr --all", "unrecognized arguments: --all"),
        (
            "reboot\n",
            "reboot\nsshkey --username=deploy 'ssh-ed25519 AAAA'\n",
            "ssh user with the name deploy has already",
        ),
    ],
)
def test_pykickstart_refuses_other_files(tmp_path: Path, good: str, bad: str, says: str) -> None:
    file = tmp_path / "bad.ks"
    file.write_text(text_of("el9-single").replace(good, bad), encoding="utf-8")
    assert says in " ".join(run(KSVALIDATOR, "--version", "RHEL9", file).split())


# --- autoinstall ------------------------------------------------------------------------------------------------

CLOUD_INIT = pytest.mark.skipif(
    shutil.which("cloud-init") is None, reason="cloud-init is not installed: `make setup-test` does"
)
COMMANDS = {"type": "array", "items": {"type": "string"}}
STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}}
SHAPE: dict[str, Any] = {
    # Types as Canonical's autoinstall reference states them (canonical/subiquity, autoinstall-reference.rst).
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "early-commands", "network", "apt", "storage", "user-data", "late-commands"],
    "properties": {
        "version": {"const": 1},
        "early-commands": COMMANDS,
        "late-commands": COMMANDS,
        "error-commands": COMMANDS,
        "refresh-installer": {
            "type": "object",
            "properties": {"update": {"const": False}},
            "additionalProperties": False,
        },
        "locale": {"type": "string"},
        "keyboard": {"type": "object", "required": ["layout"]},
        "network": {"type": "object", "required": ["version", "ethernets"], "properties": {"version": {"const": 2}}},
        "proxy": {"type": "string", "pattern": "^https?://"},
        "apt": {
            "type": "object",
            "properties": {
                "preserve_sources_list": {"const": False},
                "geoip": {"type": "boolean"},
                "fallback": {"enum": ["abort", "offline-install", "continue-anyway"]},
                "primary": {"type": "array", "items": {"type": "object", "required": ["arches", "uri"]}},
                "security": {"type": "array", "items": {"type": "object", "required": ["arches", "uri"]}},
            },
            "additionalProperties": False,
        },
        "storage": {"type": "object", "required": ["config"], "not": {"required": ["layout"]}},
        "ssh": {"type": "object", "properties": {"install-server": {"const": True}, "allow-pw": {"const": False}}},
        "packages": STRINGS,
        "timezone": {"type": "string"},
        "updates": {"enum": ["security", "all"]},
        "shutdown": {"enum": ["reboot", "poweroff"]},
        "user-data": {"type": "object", "required": ["users"]},
    },
}
"""The keys that we use; `identity` is not needed beside `user-data`."""


def autoinstall(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(text_of(name))
    assert list(document) == ["autoinstall"], "another key at this level is an error (24.04)"
    found: dict[str, Any] = document["autoinstall"]
    return found


@pytest.mark.parametrize("name", only("ubuntu"))
def test_autoinstall_has_the_shape_that_its_reference_describes(name: str) -> None:
    jsonschema.validate(autoinstall(name), SHAPE)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(autoinstall(name) | {"packages": "chrony"}, SHAPE)


@pytest.mark.parametrize("name", only("ubuntu"))
def test_storage_names_its_disks_and_every_part_is_there_before_it_is_used(name: str) -> None:
    """A disk action with `match`, or without a disk, takes an arbitrary one (subiquity's reference)."""
    actions = autoinstall(name)["storage"]["config"]
    seen: set[str] = set()
    for action in actions:
        used = {action[key] for key in ("device", "volume") if key in action} | set(action.get("devices", []))
        assert used <= seen, action
        seen.add(action["id"])
    disks = [action for action in actions if action["type"] == "disk"]
    assert [disk["path"] for disk in disks] == [f"/dev/rackready-system{n + 1}" for n in range(len(disks))]
    assert not any("match" in disk for disk in disks)
    assert [part["grub_device"] for part in actions if part.get("flag") == "boot"] == [True] * len(disks)


@CLOUD_INIT
@pytest.mark.parametrize("name", only("ubuntu"))
def test_cloud_init_takes_the_file_and_the_user_data_in_it(name: str, tmp_path: Path) -> None:
    inner = tmp_path / "user-data"
    inner.write_text(f"#cloud-config\n{yaml.safe_dump(autoinstall(name)['user-data'])}", encoding="utf-8")
    for file in (HERE / f"{name}.txt", inner):
        assert run("cloud-init", "schema", "--config-file", file) == ""


@CLOUD_INIT
def test_cloud_init_refuses_other_user_data(tmp_path: Path) -> None:
    bad = tmp_path / "user-data"
    bad.write_text("#cloud-config\nssh_deletekeys: [never]\n", encoding="utf-8")
    assert "ssh_deletekeys" in run("cloud-init", "schema", "--config-file", bad)
