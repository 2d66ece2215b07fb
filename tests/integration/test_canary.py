"""No secret is where it does not belong: canaries of every kind in a run of the real engine and the real Ansible.

BMCs, hosts, sudo and sops are the test's own; Pulumi, its provider, Ansible, ansible-runner and the vault are real.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from rackready.cli import main
from rackready.design.secrets import forget
from rackready.drivers import ansible
from rackready.drivers.ansible import run_playbook
from rackready.model.outcome import Outcome
from tests.integration.canary import Canaries
from tests.integration.provisioning import ENV, ROOT, Bench, engine_missing
from tests.unit.design.secret_places import AS_ENCRYPTED, CANARY, FakeSops

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(engine_missing()), reason=engine_missing())]

SUDO = """#!{python}
import hashlib, os, sys
words = sys.argv[1:]
sys.stderr.write(words[words.index("-p") + 1])
sys.stderr.flush()
typed = b""
while not typed.endswith(b"\\n"):
    typed += os.read(0, 1)
with open({log!r}, "a") as log:
    log.write(hashlib.sha256(typed.strip()).hexdigest() + "\\n")
at = words.index("/bin/sh")
os.execv(words[at], words[at:])
"""
PLAYBOOK = """
- hosts: nodes
  gather_facts: false
  tasks:
    - name: Become root
      ansible.builtin.command: cat /proc/self/cmdline
      changed_when: false
      become: true
      become_user: nobody
    - name: Fail as root
      ansible.builtin.command: {argv: [/nonexistent, word]}
      become: true
      become_user: nobody
"""


class World:
    """A checkout with canaries: BMC passwords in a file, the environment, a sops file and a vault; one for sudo."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, sudo: str) -> None:
        self.folder, self.canaries = root, Canaries()
        self.bench = Bench(root / "clone", net=93)
        for name in ("home", "tmp", "secrets"):
            (root / name).mkdir()
        self._seal(monkeypatch, sudo)
        for name, value in {"HOME": root / "home", "TMPDIR": root / "tmp", "RACKREADY_ROOT": self.bench.root}.items():
            monkeypatch.setenv(name, str(value))
        for name in ("ansible.cfg", "plugins", "roles", "src"):
            (self.bench.root / name).symlink_to(ROOT / name)
        monkeypatch.setattr(ansible, "shipped", lambda: self.bench.root)  # its playbooks in the place of rackready's
        self.playbooks = self.bench.root / "playbooks"
        shutil.copytree(ROOT / "playbooks/group_vars", self.playbooks / "group_vars")
        (self.playbooks / "canary.yml").write_text(PLAYBOOK, encoding="utf-8")
        self.become = root / "sudo"
        self.become.write_text(SUDO.format(python=sys.executable, log=str(root / "typed")), encoding="utf-8")
        self.become.chmod(0o700)

    def _seal(self, monkeypatch: pytest.MonkeyPatch, sudo: str) -> None:
        plant, secrets = self.canaries.plant, self.folder / "secrets"
        file, variable = plant("bmc-file"), plant("bmc-env", by_environment=True)
        vault = {"bmc": plant("bmc-vault"), "sudo": plant("sudo", by_environment=sudo == "env")}
        password = plant("vault-password")
        (secrets / "password").write_text(password, encoding="utf-8")
        sealed = VaultLib().encrypt(yaml.safe_dump(vault), VaultSecret(password.encode()))
        (secrets / "vault.yml").write_bytes(sealed)
        (secrets / "secrets.sops.yml").write_text(AS_ENCRYPTED.replace(CANARY, "shown"), encoding="utf-8")
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(secrets / "password"))
        monkeypatch.setenv("CANARY_BMC", variable)
        sops = FakeSops(self.folder / "bin", monkeypatch)
        sops.prints(json.dumps({"bmc": {"node01": plant("bmc-sops")}}))
        (secrets / "bmc").write_text(file, encoding="utf-8")
        places = [{"sops": f"{secrets}/secrets.sops.yml#bmc.node01"}, {"env": "CANARY_BMC"}]
        places += [{"vault": f"{secrets}/vault.yml#bmc"}, {"file": str(secrets / "bmc")}]
        overlay = yaml.safe_load(self.bench.paths.overlay.read_text(encoding="utf-8"))
        for node, place in zip(overlay["racks"][0]["nodes"], places, strict=True):
            node["bmc"]["password"] = place
            self.bench.rack.node(node["name"]).password = self.canaries.kinds[f"bmc-{next(iter(place))}"]
        if sudo == "env":
            monkeypatch.setenv("CANARY_SUDO", vault["sudo"])
        place = {"vault": f"{secrets}/vault.yml#sudo"} if sudo == "vault" else {"env": "CANARY_SUDO"}
        overlay["access"]["sudo_password"] = place
        self.bench.paths.overlay.write_text(yaml.safe_dump(overlay), encoding="utf-8")

    def play(self) -> dict[str, object]:
        """Run the playbook on this machine in the place of the nodes."""
        how = {"ansible_connection": "local", "ansible_become_exe": str(self.become)}
        how |= {"ansible_python_interpreter": sys.executable}
        return run_playbook(self.bench.context(), "canary.yml", ["node01", "node02"], how)  # type: ignore[return-value]

    def typed(self) -> set[str]:
        """Return digests of what sudo got as passwords."""
        return set((self.folder / "typed").read_text(encoding="utf-8").split())

    def leaks(self) -> list[str]:
        secrets = self.folder / "secrets"
        allowed = {secrets / "password", secrets / "bmc", self.folder / "bin/document"}
        return self.canaries.in_files(self.folder, allowed) + sorted(self.canaries.seen)


@pytest.fixture
def sudo() -> str:
    """Where the password for sudo is."""
    return "vault"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sudo: str) -> Iterator[World]:
    forget()
    monkeypatch.setattr(tempfile, "tempdir", None)  # what this process chose before TMPDIR was ours
    path = os.environ["PATH"]
    made = World(tmp_path, monkeypatch, sudo)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{path}")
    yield made
    made.bench.rack.stop()


def test_no_canary_is_left_or_shown(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    bench, canaries = world.bench, world.canaries
    with canaries.watched(bench.paths.logs):
        first = bench.provision()
        assert {node: result.outcome.value for node, result in first.items()} == dict.fromkeys(first, "pass"), first
        played = world.play()
        bench.rack.node("node01").password = "another"
        bench.rack.node("node03").password = "another"
        bench.rack.node("node01").sessions.clear()
        refused = bench.provision()
        for words in (
            ["status"],
            ["report"],
            ["doctor"],
            ["plan"],
            ["export", "metrics"],
            ["status", "--output", "json"],
        ):
            main.run([*words, "--env", ENV])
    said = capsys.readouterr()
    assert {result.outcome for result in played.values()} == {Outcome.FAIL}, played  # type: ignore[attr-defined]
    assert world.typed() == {hashlib.sha256(canaries.kinds["sudo"].encode()).hexdigest()}
    assert refused["node01"].outcome is Outcome.ERROR
    assert f"sops file {world.folder}/secrets/secrets.sops.yml#bmc.node01" in refused["node01"].message
    assert {"pulumi", "pulumi-resource-rackready", "ansible-playbook", "ansible-runner"} <= canaries.processes
    assert world.leaks() == []
    told = said.out + said.err + repr(first) + repr(played) + repr(refused)
    assert [name for form, name in canaries.needles().items() if form.decode() in told] == []


@pytest.mark.parametrize("sudo", ["env"])
def test_a_variable_of_the_operator_is_in_no_file_of_ansible_runner(world: World, sudo: str) -> None:
    """It writes the environment of Ansible to a file, and a kill at that moment would leave it there."""
    assert world.canaries.given == {"bmc-env", sudo.replace("env", "sudo")}
    with world.canaries.watched(world.bench.paths.logs):
        world.play()
    assert world.typed() == {hashlib.sha256(world.canaries.kinds["sudo"].encode()).hexdigest()}
    assert "ansible-runner" in world.canaries.processes
    assert world.leaks() == []
