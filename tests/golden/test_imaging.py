"""The plan of an imaged node. `GOLDENS=rewrite pytest tests/golden` rewrites it: read the difference."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rackready.design.imaging import HostKey, Login, StoredImage, digest_of, for_run, imaging_words, node_plan
from rackready.model.site import Site
from tests.unit.design.test_provisioning import site as written
from tests.unit.design.written import parse

HERE = Path(__file__).resolve().parent
KEYS = [HostKey("ed25519", "-----BEGIN A-----\nsecret\n-----END A-----\n", "ssh-ed25519 AAAA")]
IMAGE = StoredImage(name="debian12", sha256="ab" * 32, size=221292011, unpacked=886206464)
LOGINS = [Login("root", ("ssh-ed25519 BBBB",)), Login("ops", ("ssh-ed25519 CCCC",)), Login("see", ("k",), sudo=False)]


@pytest.fixture
def site() -> Site:
    scratch = [{"path": "/dev/disk/by-path/pci-0000:01:00.0-nvme-1"}, {"serial": "S4"}]
    document = written(
        disks={"system": [{"serial": "S1"}, {"serial": "S2"}], "scratch": scratch, "scratch_filesystem": "xfs"},
        kernel_options=["console=ttyS0"],
    )
    document["provisioning"]["service"] |= {"gateway": "10.10.0.254", "dns": ["10.10.0.253"]}
    document["racks"][0]["nodes"][0]["serial"] = "ABC123"
    return parse(document)


def plan(site: Site) -> dict[str, Any]:
    return for_run(node_plan(site, site.node("node01"), IMAGE, KEYS, LOGINS), run="", erase=False)


def test_the_plan_is_as_reviewed(site: Site) -> None:
    shown = plan(site)
    seed = {name: _unpacked(text) for name, text in shown["seed"].items()}
    text = json.dumps({**shown, "seed": seed}, indent=1, sort_keys=True) + "\n"
    golden = HERE / "imaging/plan.json"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def _unpacked(text: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(text.removeprefix("#cloud-config\n"))


def test_user_data_is_a_cloud_config_and_the_digest_is_of_the_rest(site: Site) -> None:
    shown = plan(site)
    assert shown["seed"]["user-data"].startswith("#cloud-config\n{")
    assert shown["digest"] == digest_of(shown)


def test_an_installation_that_may_erase_has_another_digest_than_the_first(site: Site) -> None:
    base = node_plan(site, site.node("node01"), IMAGE, KEYS, LOGINS)
    first, again = for_run(base, run="", erase=False), for_run(base, run="prod-1", erase=True)
    assert (first["erase"], again["erase"]) == (False, True)
    assert first["digest"] != again["digest"]
    assert _unpacked(again["seed"]["meta-data"])["instance-id"] == "node01-prod-1"


def test_it_is_said_in_words(site: Site) -> None:
    assert imaging_words(site, site.node("node01")) == (
        "write image debian12 to serial S1 and serial S2, scratch on /dev/disk/by-path/pci-0000:01:00.0-nvme-1, "
        "serial S4 (UEFI PXE boot)"
    )
