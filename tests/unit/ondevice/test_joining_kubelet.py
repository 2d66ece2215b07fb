"""The node's part of a join: what it writes and removes, what it leaves alone, and what it waits for."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import kube_join

Join = Callable[..., dict[str, Any]]


@pytest.fixture
def join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Join:
    """Join on a machine whose folders lie below tmp_path, by a shell command."""
    for name, place in {"FOLDER": "folder", "LOCK": "lock", "MARK": "mark", "KUBELET": "kubelet.conf"}.items():
        monkeypatch.setattr(kube_join, name, tmp_path / place)

    def run(command: str = "", **more: Any) -> dict[str, Any]:
        argv = ["sh", "-c", command, "sh", "{folder}"] if command else []
        return kube_join.joined({"files": {}, "argv": argv, "mark": "", "timeout_s": 20, **more})

    return run


def test_files_are_roots_alone_while_it_runs_and_gone_afterwards(join: Join, tmp_path: Path) -> None:
    command = "stat -c %a $1 $1/join.yaml; cat $1/join.yaml; exit 3"
    answer = join(command, files={"join.yaml": "token: x\n"})
    assert answer == {"state": "ended", "exit_code": 3, "said": "700\n600\ntoken: x\n"}
    assert not (tmp_path / "folder").exists()


def test_what_a_killed_join_left_is_removed_first(join: Join, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/join.yaml").write_text("token: old")
    assert join()["state"] == "absent"
    assert not (tmp_path / "folder").exists()


def test_a_kubelet_that_joined_is_told_with_its_cluster_and_nothing_runs(join: Join, tmp_path: Path) -> None:
    authority = base64.b64encode(b"PEM").decode()
    text = (
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: "
        f"{authority}\n    server: https://192.0.2.6:6443\n  name: kubernetes\nkind: Config\n"
    )
    (tmp_path / "kubelet.conf").write_text(text)
    found = {"state": "joined", "server": "https://192.0.2.6:6443", "authority": "PEM"}
    assert join("touch $1/../ran") == found
    (tmp_path / "ca.crt").write_text("PEM2")
    by_path = text.replace("certificate-authority-data: " + authority, f"certificate-authority: {tmp_path}/ca.crt")
    (tmp_path / "kubelet.conf").write_text(by_path)
    assert join() == {**found, "authority": "PEM2"}
    (tmp_path / "kubelet.conf").write_text("damaged")
    assert join() == {"state": "joined", "server": "", "authority": ""}


def test_a_command_that_ended_well_is_not_run_again_until_it_is_forgotten(join: Join) -> None:
    assert join("true", mark="a")["exit_code"] == 0
    assert join("false", mark="a") == {"state": "marked"}
    assert join("false", mark="b")["exit_code"] == 1, "another command"
    assert join(mark="a", forget=True) == {"state": "absent"}
    assert join("false", mark="a")["exit_code"] == 1


def test_a_program_that_is_missing_and_one_without_an_end(join: Join, tmp_path: Path) -> None:
    missing = join(argv=["no-such-kubeadm"])
    assert (missing["state"], "no-such-kubeadm" in missing["said"]) == ("missing", True)
    slow = join("echo begun; sleep 60", timeout_s=1)
    assert slow == {"state": "timeout", "exit_code": None, "said": "begun\n"}
    assert not (tmp_path / "folder").exists()


def test_a_join_waits_for_the_one_before_it(join: Join, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert join("true", timeout_s=0.3) == {"state": "busy"}
    assert join("true")["exit_code"] == 0


DRIVER = """
import sys
from pathlib import Path
from rackready.ondevice import kube_join
here = Path(sys.argv[1])
kube_join.FOLDER, kube_join.LOCK = here / "folder", here / "lock"
kube_join.MARK, kube_join.KUBELET = here / "mark", here / "kubelet.conf"
sys.exit(kube_join.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_survives_the_end_of_its_starter_and_is_waited_for(
    join: Join, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM comes at a time limit, and to sessions that an earlier run left: a join must not be cut by either."""
    command = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; touch {tmp_path}/kubelet.conf"
    request = {"files": {"a": "secret"}, "argv": ["sh", "-c", command], "mark": "", "timeout_s": 120}
    child = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stdin=subprocess.PIPE, text=True)
    assert child.stdin is not None
    child.stdin.write(json.dumps(request))
    child.stdin.close()
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(child.pid, number)
    child.wait(120)
    assert (tmp_path / "folder").exists(), "the command may still read its files"
    assert join(timeout_s=0.3) == {"state": "busy"}
    (tmp_path / "go").touch()
    assert join(timeout_s=120)["state"] == "joined"
    assert not (tmp_path / "folder").exists()


def test_it_runs_alone_and_answers_with_one_document(tmp_path: Path) -> None:
    """Its source is sent to a node without anything of ours: only the standard library is there."""
    source = Path(kube_join.__file__).read_text(encoding="utf-8").replace("/run/rackready", f"{tmp_path}/run")
    request = {"files": {}, "argv": ["sh", "-c", "echo told; exit 4"], "mark": "", "timeout_s": 20}
    argv = [sys.executable, "-I", "-c", source]
    done = subprocess.run(argv, input=json.dumps(request), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found == {
        "format": kube_join.FORMAT,
        "complete": True,
        "state": "ended",
        "exit_code": 4,
        "said": "told\n",
    }
