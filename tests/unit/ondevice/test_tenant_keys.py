"""Keys that let somebody in: lines as sshd reads them, its tokens, and what a tenant puts in their place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import safe_files, tenant_keys
from rackready.ondevice.tenant_keys import key_of
from rackready.ondevice.tenants import Machine
from tests.unit.ondevice.test_tenant_traces import OURS, TENANT, THEIRS, Made, ask, what

KEY, OTHER = "ssh-ed25519 AAAAone", "ssh-rsa AAAAtwo"


@pytest.fixture
def node(tmp_path: Path) -> Made:
    return Made(tmp_path)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f"{KEY} comment {OTHER}", KEY),
        (f"  {KEY}", KEY),
        (f'no-pty,command="echo {OTHER}" {KEY}', KEY),
        (f'command="say \\"{OTHER}\\" twice" {KEY} c', KEY),
        (f'from="10.0.0.0/8"\t{KEY}', KEY),
        ("cert-authority sk-ssh-ed25519@openssh.com AAAAsk", "sk-ssh-ed25519@openssh.com AAAAsk"),
        (f'command="{KEY}"', ""),
        (f"no-pty no-x {KEY}", ""),
        ("# comment", ""),
        ("", ""),
    ],
)
def test_the_key_of_a_line_is_the_one_that_sshd_takes(line: str, key: str) -> None:
    assert key_of(line) == key


def test_a_key_that_hides_our_key_in_its_options_goes(node: Made) -> None:
    node.write("root/.ssh/authorized_keys", f'{OURS} us\nenvironment="X={OURS}" {THEIRS}\n')
    assert what(ask(node, "look")) == {"key": ["/root/.ssh/authorized_keys (root): eve@laptop"]}
    assert ask(node, "scrub")["found"] == []
    assert node.at("root/.ssh/authorized_keys").read_text() == f"{OURS} us\n"


def test_tokens_of_sshd_are_expanded(node: Made) -> None:
    node.sshd = "authorizedkeysfile /etc/keys/%u /etc/keys/by-number/%U /etc/100%%/%u .ssh/authorized_keys\n"
    for path in ("etc/keys/eve", f"etc/keys/by-number/{TENANT}", "etc/100%/eve"):
        node.write(path, f"{THEIRS}\n")
    assert ask(node)["counts"] == {"key": 3}


def test_a_token_that_is_not_known_is_refused(node: Made) -> None:
    node.sshd = "authorizedkeysfile .ssh/authorized_keys /etc/keys/%x\n"
    expected = "AuthorizedKeysFile /etc/keys/%x of sshd: of its tokens only %%, %h, %u, %U are known"
    found = ask(node, "scrub")
    assert (found["refused"], found["gone"]) == (expected, 0)


def test_a_folder_of_keys_that_is_a_tenants_link_goes_and_what_it_names_stays(node: Made) -> None:
    node.write("etc/ssh/authorized_keys", f"{THEIRS}\n")
    node.at("homes/eve").mkdir(parents=True)
    os.lchown(node.at("homes/eve"), TENANT, TENANT)
    node.at("homes/eve/.ssh").symlink_to("/etc/ssh")
    os.lchown(node.at("homes/eve/.ssh"), TENANT, TENANT)
    spare = ["/homes"]
    named = "/homes/eve/.ssh/authorized_keys"
    assert what(ask(node, spare=spare)) == {"key": [f"{named} (eve): a link", f"{named}2 (eve): a link"]}
    assert ask(node, "scrub", spare=spare)["found"] == []
    assert node.at("etc/ssh/authorized_keys").read_text() == f"{THEIRS}\n"
    assert not node.at("homes/eve/.ssh").is_symlink()


def test_a_link_of_root_is_followed(node: Made) -> None:
    node.write("data/homes/eve/.ssh/authorized_keys", f"{THEIRS}\n", TENANT)
    node.at("homes").symlink_to("data/homes")
    spare = ["/data/homes"]
    assert ask(node, spare=spare)["counts"] == {"key": 1}
    assert ask(node, "scrub", spare=spare)["found"] == []
    assert node.at("data/homes/eve/.ssh/authorized_keys").read_text() == ""


def test_a_pipe_and_an_endless_file_in_place_of_keys_go(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_keys, "LONGEST", 100)
    node.at("homes/eve/.ssh").mkdir(parents=True)
    os.mkfifo(node.at("homes/eve/.ssh/authorized_keys"))
    node.write("homes/eve/.ssh/authorized_keys2", "x" * 101, TENANT)
    named = "/homes/eve/.ssh/authorized_keys"
    assert what(ask(node, spare=["/homes"])) == {
        "key": [f"{named} (eve): no plain file", f"{named}2 (eve): longer than 100 bytes"]
    }
    assert ask(node, "scrub", spare=["/homes"])["found"] == []


def test_keys_that_lie_elsewhere_once_they_are_open_stay(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autofs mounts a home when it is opened: then it is on the site's storage, which other nodes use, too."""
    node.write("homes/eve/.ssh/authorized_keys", f"{THEIRS}\n", TENANT)
    node.write("root/.ssh/authorized_keys", f"{OURS}\n{THEIRS}\n")
    away = node.at("homes/eve/.ssh").stat().st_ino
    monkeypatch.setattr(node, "owns", lambda folder: os.fstat(folder).st_ino != away)
    assert what(ask(node, spare=["/homes"])) == {"key": ["/root/.ssh/authorized_keys (root): eve@laptop"]}
    assert ask(node, "scrub", spare=["/homes"])["found"] == []
    assert node.at("homes/eve/.ssh/authorized_keys").read_text() == f"{THEIRS}\n"


def test_a_home_that_root_may_not_enter_is_none_of_this_node(node: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS with root_squash, a home of mode 0700."""
    real = safe_files.place

    def squashed(root: str, path: str, trusted: Any) -> Any:  # noqa: ANN401 - as it is
        if path.startswith("/homes/eve"):
            raise PermissionError(13, "Permission denied")
        return real(root, path, trusted)

    monkeypatch.setattr(safe_files, "place", squashed)
    assert ask(node, spare=["/homes"])["refused"] == ""


def test_the_kernel_tells_what_a_folder_is_on(tmp_path: Path) -> None:
    here, away = os.open(tmp_path, os.O_RDONLY), os.open("/proc", os.O_RDONLY)
    node = Machine("/")
    assert (node.owns(here), node.owns(away)) == (True, False)
    os.close(here)
    os.close(away)
