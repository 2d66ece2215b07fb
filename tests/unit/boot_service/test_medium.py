"""The boot medium of an armed node: what is on it, who can guess its name, and when it goes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rackready.drivers.boot_service import BootService, BootServiceError, authority, loaders, medium
from tests.unit.boot_service.made import armed, settings

MAC = "52:54:00:00:00:01"
TOOLS = ("mformat", "mmd", "mcopy", "xorriso")


@pytest.fixture
def service(tmp_path: Path) -> BootService:
    made = BootService(tmp_path / "boot", settings())
    made.layout.make()
    authority.ensure(made.layout.tls, made.settings.address)
    for name in ("vmlinuz", "ramdisk.img"):
        (made.layout.boot / name).write_text(name)
    return made


@pytest.fixture
def whole(service: BootService) -> BootService:
    if not all(map(shutil.which, TOOLS)) or not all(item.source.exists() for item in loaders.CD_LOADERS):
        pytest.skip("needs packages mtools, xorriso, shim-signed and grub-efi-amd64-signed: `make setup-sim`")
    service.arm(armed("node01", MAC))
    return service


def discs(service: BootService) -> list[Path]:
    return sorted((service.layout.http / "media").rglob("*.iso"))


def said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_medium_boots_the_ramdisk_with_the_nodes_command_line(whole: BootService, tmp_path: Path) -> None:
    url = whole.medium("node01")
    (disc,) = discs(whole)
    assert url == f"http://10.9.0.1:8080/media/node01/{disc.name}"
    assert re.fullmatch(r"[0-9a-f]{32}\.iso", disc.name)
    assert disc.stat().st_mode & 0o777 == 0o644
    said("xorriso", "-osirrox", "on", "-indev", f"stdio:{disc}", "-extract", "/", str(tmp_path / "root"))
    menu = (tmp_path / "root/boot/grub/grub.cfg").read_text()
    assert menu == whole.layout.grub(MAC).read_text(), "the same as over the network"
    assert (tmp_path / "root/.disk/info").exists()
    assert (tmp_path / "root/ramdisk.img").read_text() == "ramdisk.img"
    report = said("xorriso", "-indev", f"stdio:{disc}", "-report_el_torito", "plain")
    assert "UEFI" in report, "the firmware finds a boot record"


def test_the_loaders_are_the_signed_ones(whole: BootService, tmp_path: Path) -> None:
    whole.medium("node01")
    (disc,) = discs(whole)
    said("xorriso", "-osirrox", "on", "-indev", f"stdio:{disc}", "-extract_boot_images", str(tmp_path / "boot"))
    fat = next(path for path in (tmp_path / "boot").iterdir() if path.name.startswith("eltorito_img"))
    for item in loaders.CD_LOADERS:
        copy = tmp_path / item.name
        said("mcopy", "-i", str(fat), f"::EFI/BOOT/{item.name}", str(copy))
        assert copy.read_bytes() == item.source.read_bytes()


def test_a_medium_of_the_same_parts_is_kept_and_another_ramdisk_makes_another(whole: BootService) -> None:
    first = whole.medium("node01")
    made = discs(whole)[0].stat().st_mtime_ns
    assert whole.medium("node01") == first
    assert discs(whole)[0].stat().st_mtime_ns == made
    (whole.layout.boot / "ramdisk.img").write_text("newer")
    assert whole.medium("node01") != first
    assert len(discs(whole)) == 1, "the older one is gone"


def test_disarming_and_another_plan_remove_it(whole: BootService) -> None:
    whole.medium("node01")
    whole.disarm("node01")
    assert discs(whole) == []
    with pytest.raises(BootServiceError) as refused:
        whole.medium("node01")
    assert str(refused.value) == (
        "node01: boot medium - Expected: an armed node Actual: not armed. "
        "Run `rackready provision --limit node01` again."
    )
    whole.arm(armed("node01", MAC))
    whole.medium("node01")
    whole.arm(armed("node01", MAC, digest="e" * 64))
    assert discs(whole) == [], "its token is void"


def test_bmcs_on_another_network_get_the_address_that_they_reach(tmp_path: Path) -> None:
    service = BootService(tmp_path / "boot", settings(media_address="10.8.0.1"))
    assert service.media("node01") == "http://10.8.0.1:8080/media/node01/"


def test_missing_programs_are_named_with_their_packages(service: BootService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.arm(armed("node01", MAC))
    monkeypatch.setattr(medium.shutil, "which", lambda _name: None)
    with pytest.raises(BootServiceError) as refused:
        service.medium("node01")
    assert str(refused.value) == (
        "boot service: virtual media - Expected: the programs mformat, mmd, mcopy, xorriso Actual: not on the PATH. "
        "Install the packages mtools, xorriso on this machine."
    )
