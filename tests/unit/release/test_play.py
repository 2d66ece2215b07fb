"""The code and the packages of a release are enough for a play: nothing else of the controller is on the path."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from rackready.drivers.release import code
from rackready.drivers.release.closure import closure

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code and the packages of a release, as a node unpacks them."""
    top = tmp_path_factory.mktemp("node")
    with tarfile.open(fileobj=io.BytesIO(code.archive())) as tar:
        tar.extractall(top / "code", filter="data")
    for name in closure(PYTHON, os.uname().machine):
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                place = top / "packages" / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(str(file.locate()))
    (top / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"children": {"nodes": {"hosts": {"node01": {"ansible_connection": "local"}}}}}}),
        encoding="utf-8",
    )
    return top


def clean(node: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python with the release's packages and code, and without those of the controller (-S, -s)."""
    env = {
        "ANSIBLE_CONFIG": str(node / "code/ansible.cfg"),
        "ANSIBLE_INVENTORY_ENABLED": "ansible.builtin.yaml",
        "HOME": str(node),
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{node}/packages:{node}/code/src",
    }
    argv = [sys.executable, "-S", "-s", *words]
    return subprocess.run(argv, env=env, cwd=node, input=stdin, capture_output=True, text=True, check=False)


def test_ansible_runs(node: Path) -> None:
    done = clean(node, "-m", "ansible.cli.playbook", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ansible-playbook [core 2.19.")
    assert f"config file = {node}/code/ansible.cfg" in done.stdout


@pytest.mark.parametrize("phase", ["install", "optimize"])
def test_a_pulled_phase_is_whole(node: Path, phase: str) -> None:
    argv = ["-i", str(node / "hosts.yml"), "--syntax-check", f"code/playbooks/{phase}.yml"]
    done = clean(node, "-m", "ansible.cli.playbook", *argv)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"playbook: code/playbooks/{phase}.yml"


FILTERS = """
import importlib, importlib.util, pathlib, re, sys
late = set()
for kind in ("action", "callback", "filter"):
    for path in sorted(pathlib.Path("code/plugins", kind).glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"{kind}_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        late |= set(re.findall(r"from (rackready[.][a-z_.]+) import", path.read_text()))
assert len(late) >= 2, late
for name in [*late, "rackready.drivers.ansible_worker", "rackready.drivers.release.sealing", "pynvml"]:
    importlib.import_module(name)
from rackready.paths import is_checkout, shipped
assert is_checkout() and (shipped() / "playbooks/install.yml").is_file(), shipped()
print(sorted(path for path in sys.path if "site-packages" in path))
"""


def test_plugins_and_the_worker_find_what_they_import(node: Path) -> None:
    done = clean(node, "-c", FILTERS)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_package_that_is_missing_is_noticed(node: Path) -> None:
    done = clean(node, "-c", f"import sys; sys.path.remove({str(node / 'packages')!r})\n{FILTERS}")
    assert done.returncode != 0
    assert "No module named" in done.stderr
