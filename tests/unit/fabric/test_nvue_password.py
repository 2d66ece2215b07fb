"""A user's new password on the rack's own NVUE: its `nv` in a real shell, and the hash by a real openssl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready_sim.hardware import build_switch_state

_SRC = Path(__file__).resolve().parents[3] / "src/rackready_sim/programs"
_NV = """#!{python} -IS
import sys
sys.path.insert(0, "{src}")
from pathlib import Path
from hwsim import paths
paths.ROOT = Path("{root}")
from hwsim.switch import apply, nv, routing
apply.links = lambda: {{}}
apply._do = lambda commands: None
routing.bring = lambda settings: None
apply.subprocess.run = lambda argv, *, input, **more: Path("{root}/shadow").write_text(input)
sys.exit(nv.main(sys.argv[1:]))
"""
WORD = "new-Word_4711"


class Shell:
    """A login to the switch: bash with its `nv`."""

    def __init__(self, root: Path) -> None:
        (root / "opt/hw").mkdir(parents=True)
        (root / "opt/hw/state.json").write_text(json.dumps(build_switch_state(load_site("sim"), "leaf01")))
        (root / "bin").mkdir()
        (root / "bin/nv").write_text(_NV.format(python=sys.executable, src=_SRC, root=root))
        (root / "bin/nv").chmod(0o700)
        self.root, self.sent = root, list[str]()

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        self.sent.append(command)
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "SUDO_USER": "cumulus"}
        done = subprocess.run(
            ["bash", "-c", command],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        return self.feed(command, "", timeout_s=timeout_s)

    def as_root(self, argv: list[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        del timeout_s
        raise AssertionError(argv)

    def close(self) -> None:
        """Nothing to end."""

    def shadow(self) -> str:
        return (self.root / "shadow").read_text(encoding="utf-8").strip()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_the_hash_of_the_new_password_is_applied_confirmed_and_saved(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "leaf01")
    driver = CumulusNvue("leaf01", shell)  # type: ignore[arg-type] - no test needs its other commands
    driver.set_password("cumulus", WORD)
    user, _, hashed = shell.shadow().partition(":")
    salt = hashed.split("$")[2]
    made = subprocess.run(
        ["openssl", "passwd", "-6", "-salt", salt, "-stdin"], input=WORD, capture_output=True, text=True, check=True
    )
    assert (user, hashed) == ("cumulus", made.stdout.strip())
    states = {one.id: one.state.value for one in driver.revisions()}
    assert "unconfirmed" in states.values(), states
    driver.keep_password()
    assert "unconfirmed" not in {one.state.value for one in driver.revisions()}
    assert hashed in (shell.root / "etc/nvue.d/startup.yaml").read_text(encoding="utf-8"), "saved"
    driver.keep_password()
    assert WORD not in repr(shell.sent)
    assert hashed not in repr(shell.sent)
    assert not [path for path in Path("/tmp").glob("tmp.*.yaml") if hashed in path.read_text(encoding="utf-8")]  # noqa: S108


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_a_change_that_is_not_kept_is_rolled_back(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "leaf01")
    driver = CumulusNvue("leaf01", shell)  # type: ignore[arg-type]
    driver.set_password("cumulus", "first-Word_1")
    driver.keep_password()
    first = shell.shadow()
    driver.set_password("cumulus", WORD)
    assert shell.shadow() != first
    driver.restore_password("cumulus", "first-Word_1")
    assert shell.shadow() == first
