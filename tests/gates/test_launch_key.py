"""Logins between nodes for MPI: as the site's user, who becomes root by sudo, with a password or without one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.drivers import launch_key as module
from rackready.drivers.launch_key import PeerLogin, launch_key
from rackready.drivers.remote import Remote, UnreachableError
from rackready.drivers.ssh.sudo import Sudo
from rackready.drivers.ssh.target import KeyLogin, SshTarget
from rackready.gates.engine.launch import launcher
from rackready.model.base import SecretRef
from rackready.paths import EnvPaths
from tests.gates.sshserver import Server, serve

SUDO = """#!/bin/sh
user=root
while [ $# -gt 0 ]; do
  case $1 in -n|-H) shift;; -u) user=$2; shift 2;; --) shift; break;; *) break;; esac
done
[ "$user" = root ] || HOME={homes}/$user
export HOME
exec "$@"
"""
"""Stands for sudo(8): it gives a user's home, and asks for no password."""


class Peer:
    """One machine: head and peer at once, with a user `ubuntu` beside root."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.admitted, self.rules = folder / "homes/ubuntu/.ssh/authorized_keys", folder / "sudoers.d"
        self.admitted.parent.mkdir(parents=True)
        self.rules.mkdir()
        for name, text in (("sudo", SUDO.replace("{homes}", str(folder / "homes"))), ("orted", ""), ("visudo", "")):
            self.program(name, text or "#!/bin/sh\nexit 0\n")

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="ascii")
        path.chmod(0o755)

    def target(self, sudo: Sudo | None = None, user: str = "tester") -> SshTarget:
        login = KeyLogin(self.server.client_key)
        return SshTarget("node01", "127.0.0.1", self.server.port, user, login, self.server.known_hosts, sudo=sudo)

    def rule(self) -> list[str]:
        return [path.read_text(encoding="ascii") for path in self.rules.iterdir()]


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin")
    with serve(tmp_path) as server:
        found = Peer(server, tmp_path)
        monkeypatch.setattr(module, "SUDOERS", str(found.rules))
        yield found


@pytest.fixture
def remote(peer: Peer) -> Iterator[Remote]:
    found = Remote({"node01": peer.target()})
    yield found
    found.close()


def test_a_user_with_sudo_logs_in_to_peers_and_becomes_root_there(peer: Peer, remote: Remote) -> None:
    with launch_key(remote, "node01", "192.0.2.11", ["node01"], peer.server.known_hosts, PeerLogin("ubuntu")) as key:
        assert 'restrict,from="192.0.2.11" ssh-ed25519' in peer.admitted.read_text(encoding="ascii")
        assert key.mpirun_options(2222) == (
            "--mca",
            "plm_rsh_args",
            f"{key.ssh_options} -p 2222 -l ubuntu",
            "--mca",
            "orte_launch_agent",
            "sudo -n orted",
        )
        assert peer.rule() == []
    assert peer.admitted.read_text(encoding="ascii") == ""
    assert not (peer.folder / "root/.ssh").exists()


def test_root_logs_in_as_before(peer: Peer, remote: Remote) -> None:
    with launch_key(remote, "node01", "192.0.2.11", ["node01"], peer.server.known_hosts) as key:
        assert key.mpirun_options(22) == ("--mca", "plm_rsh_args", f"{key.ssh_options} -p 22 -l root")
        assert "rackready-launch-" in (peer.folder / "root/.ssh/authorized_keys").read_text(encoding="ascii")


def test_where_sudo_asks_a_rule_lets_the_user_start_orted_meanwhile(peer: Peer, remote: Remote) -> None:
    login = PeerLogin("ubuntu", asks=True)
    with launch_key(remote, "node01", "192.0.2.11", ["node01"], peer.server.known_hosts, login):
        assert peer.rule() == [f"ubuntu ALL=(root) NOPASSWD: {peer.folder}/bin/orted\n"]
        assert [oct(path.stat().st_mode)[-3:] for path in peer.rules.iterdir()] == ["440"]
    assert peer.rule() == []


def test_a_rule_that_sudo_would_not_read_is_not_put_in_place(peer: Peer, remote: Remote) -> None:
    peer.program("visudo", "#!/bin/sh\necho 'parse error' >&2\nexit 1\n")
    login = PeerLogin("ubuntu", asks=True)
    held = launch_key(remote, "node01", "192.0.2.11", ["node01"], peer.server.known_hosts, login)
    with pytest.raises(UnreachableError) as caught:
        held.__enter__()
    assert str(caught.value) == "node01: preparing the MPI launch failed (parse error)"
    assert peer.rule() == []
    assert list(peer.folder.glob("rackready-launch.*")) == []


def test_the_key_that_a_killed_run_left_with_the_user_is_swept(
    peer: Peer, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackready.drivers.remote.RUN_ID", "killed00")
    left = launch_key(remote, "node01", "192.0.2.11", ["node01"], peer.server.known_hosts, PeerLogin("tester"))
    admitted = peer.folder / "homes/tester/.ssh/authorized_keys"
    left.__enter__()
    assert "killed00" in admitted.read_text(encoding="ascii")
    monkeypatch.setattr("rackready.drivers.remote.RUN_ID", "alive000")
    again = Remote({"node01": peer.target(Sudo())})
    assert again.sweep("node01").exit_code == 0
    again.close()
    assert admitted.read_text(encoding="ascii") == ""


@pytest.mark.parametrize(("asked", "rules"), [(None, 0), (SecretRef(env="RACKREADY_TEST_SUDO"), 1)])
def test_the_launcher_uses_the_site_s_user(
    peer: Peer, remote: Remote, tmp_path: Path, asked: SecretRef | None, rules: int
) -> None:
    site = load_site("sim")
    paths = EnvPaths(tmp_path, "sim")
    paths.known_hosts.parent.mkdir(parents=True)
    shutil.copy(peer.server.known_hosts, paths.known_hosts)
    hosts = {"node01": peer.target(Sudo(asked), "ubuntu")}
    with launcher(site, paths, remote, hosts)("node01", ["node01"]) as options:
        assert options[2].endswith(" -l ubuntu")
        assert len(peer.rule()) == rules
