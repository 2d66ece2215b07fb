"""Commands as root by sudo, through a server that really runs them and a sudo that answers as sudo 1.9.13p3 does."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rackready.design.facts import desired_digest
from rackready.design.hostvars import connection_vars
from rackready.design.secrets import SecretUnreadableError
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.sudo import Sudo
from rackready.drivers.ssh.target import KeyLogin, SshTarget, node_target
from rackready.model.base import SecretRef
from tests.gates.sshserver import Server, serve
from tests.unit.drivers.site_access import site_with

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = 'it\'s $ecret; "x"'
"""With what a shell would read."""
STEP = "Allow tester in sudoers on the host, or correct access.user and access.sudo_password in the site file"


@dataclass
class World:
    """A node with sudo, and the file that holds its user's password."""

    server: Server
    folder: Path
    secret: Path

    def remote(self, *, password: bool = True) -> Remote:
        sudo = Sudo(SecretRef(file=self.secret) if password else None)
        login, pins = KeyLogin(self.server.client_key), self.server.known_hosts
        return Remote({"node01": SshTarget("node01", "127.0.0.1", self.server.port, "tester", login, pins, sudo=sudo)})

    def rule(self, name: str, password: str = PASSWORD) -> None:
        (self.folder / "sudo.json").write_text(json.dumps({"rule": name, "password": password}), encoding="utf-8")

    def noted(self, kind: str) -> list[str]:
        path = self.folder / f"sudo.{kind}"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sudo").symlink_to(Path(__file__).with_name("fake_sudo.py"))
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n", encoding="utf-8")
    path = f"{programs}:{os.environ['PATH']}"
    with serve(tmp_path, PATH=path, FAKE_SUDO=str(tmp_path / "sudo.json")) as server:
        made = World(server, tmp_path, secret)
        made.rule("all")
        yield made


@pytest.fixture
def opened(world: World) -> Iterator[Callable[..., Remote]]:
    with ExitStack() as stack:

        def make(*, password: bool = True) -> Remote:
            remote = world.remote(password=password)
            stack.callback(remote.close)
            return remote

        yield make


@pytest.mark.parametrize(
    "text",
    ["", "no newline at the end", "\n\n", "one\ntwo\n", "é\t'\"\\n $HOME\0\x7f", "x" * 200_000 + "\n"],
    ids=["empty", "no newline", "blank lines", "lines", "odd characters", "long"],
)
@pytest.mark.parametrize("rule", ["all", "nopasswd"])
def test_the_commands_own_input_arrives_byte_for_byte(
    world: World, opened: Callable[..., Remote], text: str, rule: str
) -> None:
    world.rule(rule)
    answer = opened().run("node01", ("cat",), stdin=text, timeout_s=30)
    assert (answer.exit_code, answer.stdout, answer.failure) == (0, text, "")


def test_sudo_without_a_password_gets_no_line_of_ours(world: World, opened: Callable[..., Remote]) -> None:
    world.rule("nopasswd")
    answer = opened(password=False).run("node01", ("cat",), stdin="one\ntwo", timeout_s=30)
    assert (answer.exit_code, answer.stdout) == (0, "one\ntwo")
    assert [json.loads(call)[:3] for call in world.noted("calls")] == [["-n", "-H", "--"]] * 2


def test_sudo_is_tried_once_on_each_connection(world: World, opened: Callable[..., Remote]) -> None:
    remote = opened()
    for _ in range(3):
        assert remote.run("node01", ("true",), timeout_s=30).exit_code == 0
    calls = [json.loads(call) for call in world.noted("calls")]
    assert calls[0] == ["-k", "-S", "-p", "", "-H", "--", "true"]
    assert (len(calls), world.server.connections) == (4, 1)
    assert all(call[:6] == ["-k", "-S", "-p", "", "-H", "--"] for call in calls)


def test_exit_code_error_output_and_environment_are_the_commands(opened: Callable[..., Remote]) -> None:
    answer = opened().run("node01", ("sh", "-c", 'echo "$A"; echo trouble >&2; exit 7'), env={"A": "b c"}, timeout_s=30)
    assert (answer.exit_code, answer.stdout) == (7, "b c\n")
    assert answer.stderr.endswith("trouble\n")


REFUSED = {
    "wrong password": (
        "all",
        True,
        "Sorry, try again; sudo: no password was provided; sudo: 1 incorrect password attempt",
    ),
    "not in sudoers": ("none", True, "tester is not in the sudoers file"),
    "some commands only": (
        "id",
        True,
        "Sorry, user tester is not allowed to execute '/usr/bin/true' as root on node01",
    ),
    "no terminal": ("requiretty", True, "sudo: sorry, you must have a tty to run sudo"),
    "password wanted": ("all", False, "sudo: a password is required"),
    "not in sudoers, no password": ("none", False, "sudo: a password is required"),
}


@pytest.mark.parametrize(("rule", "password", "actual"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_user_the_place_of_the_password_and_what_sudo_said(
    world: World,
    opened: Callable[..., Remote],
    rule: str,
    password: bool,  # noqa: FBT001 - a value of the table
    actual: str,
) -> None:
    world.rule(rule, "another" if "Sorry, try again" in actual else PASSWORD)
    answer = opened(password=password).run("node01", ("true",), timeout_s=30)
    wanted = f"sudo with the password in file {world.secret}" if password else "sudo without a password"
    assert answer.failure == (
        f"node01 127.0.0.1:{world.server.port}: sudo - Expected: tester becomes root by {wanted} "
        f"Actual: {actual}. {STEP}"
    )
    assert (answer.exit_code, answer.reached) == (None, False)


def test_a_host_without_sudo_is_refused_with_the_shells_words(world: World, opened: Callable[..., Remote]) -> None:
    (world.folder / "bin" / "sudo").unlink()
    answer = opened(password=False).run("node01", ("true",), timeout_s=30)
    assert "Actual: sh: 1: sudo: not found. Allow tester" in answer.failure


def test_an_empty_answer_of_sudo_is_said() -> None:
    error = Sudo().refused(
        "node01 192.0.2.1:22", "ops", "sudo: unable to resolve host node01: Name or service not known"
    )
    assert "Actual: no answer. Allow ops in sudoers" in str(error)


def test_a_wrong_password_is_one_attempt_for_the_lock_out_of_the_account(
    world: World, opened: Callable[..., Remote]
) -> None:
    world.rule("all", "another")
    opened().run("node01", ("true",), timeout_s=30)
    assert world.noted("tried") == [PASSWORD]


def test_a_password_that_is_gone_stops_the_controller_not_the_node(world: World, opened: Callable[..., Remote]) -> None:
    world.secret.unlink()
    with pytest.raises(SecretUnreadableError):
        opened().run("node01", ("true",), timeout_s=30)


def test_a_new_password_counts_at_once(world: World, opened: Callable[..., Remote]) -> None:
    remote = opened()
    assert remote.run("node01", ("true",), timeout_s=30).exit_code == 0
    world.rule("all", "newer")
    world.secret.write_text("newer", encoding="utf-8")
    assert remote.run("node01", ("true",), timeout_s=30).exit_code == 0


def test_the_password_is_in_no_command_log_error_or_output(
    world: World, opened: Callable[..., Remote], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    spy = "cat /proc/self/environ /proc/$PPID/cmdline /proc/$PPID/environ /proc/self/cmdline"
    seen = opened().run("node01", ("sh", "-c", spy), stdin="own input", timeout_s=30)
    assert seen.exit_code == 0
    world.rule("none")
    refused = opened().run("node01", ("true",), timeout_s=30)
    assert refused.failure
    texts = [*world.server.commands, *world.noted("calls"), caplog.text, repr(seen), repr(refused)]
    assert not [text for text in texts if PASSWORD in text or "$ecret" in text]
    assert world.noted("tried") == [PASSWORD] * 3  # it did reach sudo, on standard input


def test_the_site_says_who_becomes_root_and_how(tmp_path: Path) -> None:
    pins = tmp_path / "known_hosts"
    root = node_target(site_with(), "node01", pins)
    bare = node_target(site_with(user="ops"), "node01", pins)
    place: dict[str, object] = {"user": "ops", "sudo_password": {"env": "OPS_PASSWORD"}}
    asked = node_target(site_with(**place), "node01", pins)
    assert (root.sudo, bare.sudo, asked.sudo) == (None, Sudo(), Sudo(SecretRef(env="OPS_PASSWORD")))


@pytest.mark.parametrize(
    ("place", "variables"),
    [
        (None, {}),
        ({"file": "secrets/sudo"}, {"file": "/checkout/secrets/sudo", "env": ""}),
        ({"env": "OPS_PASSWORD"}, {"file": "", "env": "OPS_PASSWORD"}),
    ],
)
def test_the_inventory_has_the_place_of_the_password_alone(
    monkeypatch: pytest.MonkeyPatch, place: dict[str, str] | None, variables: dict[str, str]
) -> None:
    """playbooks/group_vars/nodes.yml reads it there, in the process that runs Ansible."""
    monkeypatch.setenv("OPS_PASSWORD", PASSWORD)
    site = site_with(user="ops", sudo_password=place)
    given = connection_vars(site, site.node("node01"), Path("/state/known_hosts"))
    assert {key: value for key, value in given.items() if "sudo" in key} == {
        f"rackready_sudo_password_{key}": value for key, value in variables.items()
    }
    assert PASSWORD not in repr(given) + site.model_dump_json() + desired_digest(site, "node01")
    assert desired_digest(site, "node01") == desired_digest(site_with(), "node01")  # a login is no desired state


def test_group_variables_read_the_password_where_it_is_kept(tmp_path: Path) -> None:
    """As Ansible templates them, once for each place."""
    (tmp_path / "sudo").write_text(PASSWORD + "\n", encoding="utf-8")
    places = {"file": {"rackready_sudo_password_file": str(tmp_path / "sudo"), "rackready_sudo_password_env": ""}}
    places |= {"env": {"rackready_sudo_password_file": "", "rackready_sudo_password_env": "OPS_PASSWORD"}, "none": {}}
    hosts = {name: {"ansible_connection": "local", **variables} for name, variables in places.items()}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"nodes": {"hosts": hosts}}), encoding="utf-8")
    (tmp_path / "group_vars").mkdir()
    shutil.copy(ROOT / "playbooks/group_vars/nodes.yml", tmp_path / "group_vars/nodes.yml")
    argv = [str(Path(sys.executable).with_name("ansible")), "-i", str(inventory), "nodes", "-o", "-m", "debug", "-a"]
    environment = {**os.environ, "OPS_PASSWORD": "another", "ANSIBLE_INVENTORY_ENABLED": "yaml", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [*argv, "var=ansible_become_password"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    shown = {
        line.split(" | ")[0]: json.loads(line.partition("=> ")[2])["ansible_become_password"]
        for line in done.stdout.splitlines()
        if "=> " in line
    }
    assert shown == {"file": PASSWORD, "env": "another", "none": None}, done.stdout + done.stderr
