"""What imaging needs on the controller, refused before a node is touched: image, arrays, ramdisk, trusted loaders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.boot_service import loaders
from rackready.drivers.boot_service.loaders import Loader
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths
from rackready.stacks.boot_jobs import require_images
from tests.unit.design.test_provisioning import site
from tests.unit.design.written import parse

RECORD: dict[str, Any] = {"name": "debian12", "sha256": "ab" * 32, "size": 100, "unpacked": 1000}
PAIR = {"system": [{"serial": "S1"}, {"serial": "S2"}]}
STRIPED = {"system": [{"serial": "S1"}], "scratch": [{"serial": "S3"}, {"serial": "S4"}]}
SINGLE = {"system": [{"serial": "S1"}], "scratch": [{"serial": "S3"}]}
NO_MDADM = (
    "provisioning.image: debian12 - Expected: mdadm in it: disks of node01 are arrays Actual: none. Install mdadm in "
    "the root file system, and `rackready image import FILE --name debian12`."
)


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    found = EnvPaths(tmp_path, "lab", apart=True)
    for name in (f"images/{'ab' * 32}.tar.zst", "ramdisk/vmlinuz", "ramdisk/ramdisk.img"):
        path = found.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return found


def refusal(paths: EnvPaths, image: dict[str, Any], **provisioning: object) -> str:
    """Return why two nodes, of which the second boots from its disk, are not imaged; empty if they are."""
    (paths.base / "images/debian12.json").write_text(json.dumps({**RECORD, **image}), encoding="utf-8")
    try:
        require_images(parse(site(**provisioning)), paths, ["node01", "node02"])
    except RackreadyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("disks", [PAIR, STRIPED], ids=["pair", "striped-scratch"])
def test_arrays_need_an_image_with_mdadm(paths: EnvPaths, disks: dict[str, Any]) -> None:
    assert refusal(paths, {"mdadm": False}, disks=disks) == NO_MDADM
    assert refusal(paths, {"mdadm": True}, disks=disks) == ""
    assert refusal(paths, {}, disks=disks) == "", "imported before it was recorded"


def test_single_disks_need_no_mdadm(paths: EnvPaths) -> None:
    assert refusal(paths, {"mdadm": False}, disks=SINGLE) == ""


def test_a_missing_ramdisk_is_named(paths: EnvPaths) -> None:
    (paths.base / "ramdisk/vmlinuz").unlink()
    assert refusal(paths, {}).endswith("Actual: no vmlinuz. Run `rackready image ramdisk`.")


@pytest.mark.parametrize("boot", ["pxe", "media"])
def test_secure_boot_needs_loaders_that_trust_the_ramdisk(
    paths: EnvPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str
) -> None:
    shim = tmp_path / "shim"
    shim.write_bytes(b"Canonical Ltd. Master Certificate Authority")
    monkeypatch.setattr(loaders, "_SHIM", Loader("shimx64.efi", shim, "shim-signed"))
    assert f"Actual: {shim} has another authority" in refusal(paths, {}, boot=boot, secure_boot="on")
    assert refusal(paths, {}, boot=boot, secure_boot="any") == ""
    shim.write_bytes(b"Debian Secure Boot CA")
    assert refusal(paths, {}, boot=boot, secure_boot="on") == ""
