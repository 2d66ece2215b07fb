"""No secret is where it does not belong: canaries of every kind in a run of the real engine and the real Ansible.

BMCs, hosts, sudo and sops are the test's own; Pulumi, its provider, Ansible, ansible-runner and the vault are real.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from rackready.cli import main
from rackready.design.secrets import forget
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
    """A checkout with canaries: BMC passwords in a file, the environment, a sops file and a vault; sudo in the vault."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.canaries = root, Canaries()
        self.bench = Bench(root / "clone", net=93)
        for name in ("home", "tmp", "secrets"):
            (root / name).mkdir()
        self._seal(monkeypatch)
        for name, value in {"HOME": root / "home", "TMPDIR": root / "tmp", "RACKREADY_ROOT": self.bench.root}.items():
            monkeypatch.setenv(name, str(value))
        for name in ("ansible.cfg", "plugins", "roles", "src"):
            (self.bench.root / name).symlink_to(ROOT / name)
        self.playbooks = self.bench.root / "playbooks"
        shutil.copytree(ROOT / "playbooks/group_vars", self.playbooks / "group_vars")
        (self.playbooks / "canary.yml").write_text(PLAYBOOK, encoding="utf-8")
        self.become = root / "sudo"
        self.become.write_text(SUDO.format(python=sys.executable, log=str(root / "typed")), encoding="utf-8")
        self.become.chmod(0o700)

    def _seal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plant, secrets = self.canaries.plant, self.folder / "secrets"
        file, variable = plant("bmc-file"), plant("bmc-env", by_environment=True)
        vault = {"bmc": plant("bmc-vault"), "sudo": plant("sudo-vault")}
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
        overlay["access"]["sudo_password"] = {"vault": f"{secrets}/vault.yml#sudo"}
        self.bench.paths.overlay.write_text(yaml.safe_dump(overlay), encoding="utf-8")

    def play(self) -> dict[str, object]:
        """Run the playbook on this machine in the place of the nodes."""
        how = {"ansible_connection": "local", "ansible_become_exe": str(self.become)}
        how |= {"ansible_python_interpreter": sys.executable}
        return run_playbook(self.bench.context(), "canary.yml", ["node01", "node02"], how)  # type: ignore[return-value]

    def leaks(self) -> list[str]:
        secrets = self.folder / "secrets"
        allowed = {secrets / "password", secrets / "bmc", self.folder / "bin/document"}
        return self.canaries.in_files(self.folder, allowed) + sorted(self.canaries.seen)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    forget()
    monkeypatch.setenv("PATH", os.environ["PATH"])
    path = os.environ["PATH"]
    made = World(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{path}")
    yield made
    made.bench.rack.stop()


def test_no_canary_is_left_or_shown(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    bench, canaries = world.bench, world.canaries
    with canaries.watched():
        first = bench.provision()
        assert {node: result.outcome.value for node, result in first.items()} == dict.fromkeys(first, "pass"), first
        played = world.play()
        bench.rack.node("node01").password = "another"
        bench.rack.node("node03").password = "another"
        bench.rack.node("node01").sessions.clear()
        refused = bench.provision()
        for words in (["status"], ["report"], ["doctor"], ["plan"], ["status", "--output", "json"]):
            main.run([*words, "--env", ENV])
    said = capsys.readouterr()
    assert {result.outcome for result in played.values()} == {Outcome.FAIL}, played  # type: ignore[attr-defined]
    typed = (world.folder / "typed").read_text(encoding="utf-8").split()
    assert set(typed) == {hashlib.sha256(canaries.kinds["sudo-vault"].encode()).hexdigest()}
    assert refused["node01"].outcome is Outcome.ERROR
    assert f"sops file {world.folder}/secrets/secrets.sops.yml#bmc.node01" in refused["node01"].message
    assert {"pulumi", "pulumi-resource-rackready", "ansible-playbook"} <= canaries.processes
    assert world.leaks() == []
    told = said.out + said.err + repr(first) + repr(played) + repr(refused)
    assert [name for form, name in canaries.needles().items() if form.decode() in told] == []
