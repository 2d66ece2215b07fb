"""`rackready export kubernetes`: files whose values carry their origin, and nothing of others is replaced."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.render.owned_folder import MARK

Call = Callable[..., tuple[int, str, str]]
FILES = ["gpu-operator-values.yaml", "network-operator-values.yaml", "nic-cluster-policy.yaml", "kueue.yaml"]
COMMAND = ("export", "kubernetes", "--env", "sim", "--out")


@pytest.fixture
def site(tmp_path: Path, call: Call) -> Callable[..., None]:
    """Return a function that gives the site a handover to Kubernetes."""
    del call

    def write(**settings: Any) -> None:
        path = tmp_path / "inventories/sim/site.yml"
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        document["handover"] = {"kind": "kubernetes", "kubeconfig": "k", "context": "prod", **settings}
        path.write_text(yaml.safe_dump(document), encoding="utf-8")

    write()
    return write


@pytest.mark.usefixtures("site")
def test_files_are_written_and_named(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "new/folder"
    assert call(*COMMAND, str(out)) == (0, "".join(f"{out}/{name}\n" for name in FILES), "")
    assert sorted(path.name for path in out.iterdir()) == sorted([MARK, *FILES])
    first = (out / "kueue.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# Written by `rackready export kubernetes --env sim`. Do not edit: run it again."
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert call(*COMMAND, str(out))[0] == 0
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.usefixtures("site")
def test_json_has_each_value_with_its_origin(call: Call, tmp_path: Path) -> None:
    code, out, _ = call(*COMMAND, str(tmp_path / "out"), "--output", "json")
    document = json.loads(out)
    assert (code, document["files"], document["removed"], document["notes"]) == (0, FILES, [], [])
    values = {(item["file"], *item["path"]): item for item in document["values"]}
    assert values["gpu-operator-values.yaml", "driver", "enabled"] == {
        "file": "gpu-operator-values.yaml",
        "document": 0,
        "path": ["driver", "enabled"],
        "value": False,
        "source": "install has put driver 580.173.02 on the nodes (software)",
    }


def test_a_file_that_is_no_longer_needed_goes_and_others_stay(
    call: Call, tmp_path: Path, site: Callable[..., None]
) -> None:
    out = tmp_path / "out"
    site(devices="dra")
    code, _, said = call(*COMMAND, str(out))
    source = "dra-driver-nvidia-gpu v0.4.0, docs/prerequisites.md"
    assert (code, said) == (0, f"handover.devices: dra needs Kubernetes 1.34.2 or newer ({source}).\n")
    assert (out / "dra-driver-values.yaml").exists()
    (out / "mine.yaml").write_text("mine: true\n", encoding="utf-8")
    site()
    code, _, said = call(*COMMAND, str(out))
    assert (code, said) == (0, f"removed, no longer needed: {out}/dra-driver-values.yaml\n")
    assert sorted(path.name for path in out.iterdir()) == sorted([MARK, *FILES, "mine.yaml"])


@pytest.mark.usefixtures("site")
def test_a_file_of_others_is_not_replaced(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "kueue.yaml").write_text("theirs: true\n", encoding="utf-8")
    code, _, said = call(*COMMAND, str(out))
    assert (code, said) == (
        2,
        (
            f"{out}: nothing was written.\n  {out}/kueue.yaml - Expected: no file, or what this command wrote Actual: "
            "a file of somebody else. Move it away or name another folder; put changes of your own into files of your "
            "own.\n"
        ),
    )
    assert [path.name for path in out.iterdir()] == ["kueue.yaml"]


@pytest.mark.usefixtures("site")
def test_a_folder_that_cannot_be_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, said = call(*COMMAND, str(tmp_path / "file"))
    assert (code, said) == (
        2,
        (
            f"{tmp_path}/file/{MARK} - Expected: a folder that can be written Actual: Not a directory. "
            "Correct the folder's rights, or name another with --out.\n"
        ),
    )


def test_another_scheduler_is_refused(call: Call, tmp_path: Path) -> None:
    code, _, said = call(*COMMAND, str(tmp_path / "out"))
    assert (code, said) == (
        2,
        (
            "inventories/sim/site.yml - Expected: handover.kind: kubernetes Actual: handover.kind: slurm. "
            "See docs/howto/kubernetes.md.\n"
        ),
    )
    assert not (tmp_path / "out").exists()


def test_only_the_called_command_is_imported() -> None:
    code = """
import sys
from rackready.cli import main
for words, wanted in (["kubernetes", "--help"], False), (["--help"], True):
    sys.argv = ["rackready", "export", *words]
    assert main.run(sys.argv[1:]).code == 0
    assert ("rackready.cli.netbox" in sys.modules) == wanted, words
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
