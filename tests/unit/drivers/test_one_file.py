"""Programs of several modules run on a machine without rackready."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rackready.drivers import one_file as module
from rackready.drivers.one_file import loaded, one_file

NAMES = (
    "network_mounts", "safe_files", "tenants", "tenant_keys", "nvme_admin", "scratch_drives", "scratch_arrays",
)  # fmt: skip
PARTS = [f"rackready.ondevice.{name}" for name in NAMES]


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-", *words], input=program, capture_output=True, text=True, check=False
    )


def test_a_program_runs_with_the_modules_that_it_imports() -> None:
    request = json.dumps({"op": "look", "scratch": ["/nothing/is/mounted/here"]})
    done = run(one_file([*PARTS, "rackready.ondevice.scratch_erase"]), request)
    assert (done.returncode, json.loads(done.stdout)["refused"]) == (
        0,
        "/nothing/is/mounted/here: nothing is mounted there, so its disks are not known",
    )


def test_each_module_finds_those_before_it() -> None:
    done = run(one_file([*PARTS, "rackready.ondevice.tenant_traces"]), "no JSON")
    assert done.stderr.splitlines()[-1].startswith("json.decoder.JSONDecodeError"), "it got as far as its request"


def test_a_module_that_cannot_be_quoted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "inspect", SimpleNamespace(getsource=lambda _: "x = '''y'''"))
    with pytest.raises(ValueError, match=r"rackready\.paths: three single quotes would end its text"):
        loaded(["rackready.paths"])
