"""`rackready image`: import, list, show, build and ramdisk, and what each refuses."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from rackready.images import build as builder
from rackready.images import ramdisk, tools
from rackready.images.ramdisk import Ramdisk
from rackready.images.recipes import DEBIAN12
from rackready.images.store import ImageStore
from rackready.paths import project_root

Call = Callable[..., tuple[int, str, str]]
WHOLE = {
    "usr/lib/os-release": "ID=debian\nVERSION_ID='12'\n",
    "boot/vmlinuz-6.1.0-9-amd64": "k",
    "boot/vmlinuz-6.1.0-10-amd64": "k" * 5000,
    "usr/lib/shim/shimx64.efi.signed": "s",
    "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "g",
    "usr/bin/cloud-init": "c",
}

pytestmark = pytest.mark.skipif(shutil.which("zstd") is None, reason="needs zstd: `make test` as root installs it")


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.os, "geteuid", lambda: 0)


SHIM = "usr/lib/shim/shimx64.efi.signed"
UBUNTU = {
    **WHOLE,
    "usr/lib/os-release": "ID=ubuntu\nVERSION_ID='24.04'\n",
    SHIM: "-> /etc/alternatives/shimx64.efi.signed",
    "etc/alternatives/shimx64.efi.signed": f"-> /{SHIM}.latest",
    f"{SHIM}.latest": "s",
    f"{SHIM}.previous": "s",
}
"""shim-signed of Ubuntu: update-alternatives makes absolute links."""


def pack(path: Path, files: dict[str, str], left_out: Iterable[str] = ()) -> Path:
    """Write an archive of a root file system; a text that begins with an arrow makes a link."""
    raw = BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, text in files.items():
            if name not in left_out:
                member = tarfile.TarInfo(f"./{name}")
                if text.startswith("-> "):
                    member.type, member.linkname = tarfile.SYMTYPE, text.removeprefix("-> ")
                else:
                    member.size = len(text)
                tar.addfile(member, BytesIO(text.encode()))
    with path.open("wb") as out:
        subprocess.run(["zstd", "-q"], input=raw.getvalue(), stdout=out, check=True)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return pack(tmp_path / "rocky9.tar.zst", WHOLE)


def store() -> ImageStore:
    return ImageStore(project_root() / ".rackready/images")


def test_an_image_is_imported_shown_and_listed(call: Call, image: Path) -> None:
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    code, out, err = call("image", "import", str(image), "--name", "mine", "--output", "json")
    assert (code, err) == (0, f"image mine: reading {image}\n")
    found = json.loads(out)
    archive = store().folder / f"{digest}.tar.zst"
    built = found.pop("built")
    assert found == {
        "name": "mine",
        "sha256": digest,
        "size": image.stat().st_size,
        "unpacked": 4096 * 7,
        "os": "debian",
        "release": "12",
        "kernel": "6.1.0-10-amd64",
        "mdadm": False,
        "source": "imported from rocky9.tar.zst",
        "recipe": "",
        "archive": str(archive),
    }
    assert archive.read_bytes() == image.read_bytes()
    assert json.loads(call("image", "show", "mine", "--output", "json")[1]) == {**found, "built": built}
    assert f"kernel: 6.1.0-10-amd64\nbuilt: {built}\n" in call("image", "show", "mine")[1]
    listed = json.loads(call("image", "list", "--output", "json")[1])["images"]
    assert [item["name"] for item in listed] == ["mine"]
    assert re.search(rf"mine +.*debian 12 +.*6\.1\.0-10-amd64 +.*0\.0 MB +.*{digest}", call("image", "list")[1])


def test_a_later_import_replaces_and_its_archive_goes(call: Call, image: Path, tmp_path: Path) -> None:
    assert call("image", "import", str(image), "--name", "mine")[0] == 0
    other = pack(tmp_path / "b.tar.zst", {**WHOLE, "etc/motd": "b"})
    assert call("image", "import", str(other), "--name", "mine")[0] == 0
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    assert [path.name for path in store().folder.glob("*.tar.zst")] == [f"{digest}.tar.zst"]


def test_an_empty_store_says_how_to_begin(call: Call) -> None:
    assert call("image", "list") == (0, "", "No image yet: build one with `rackready image build debian12`.\n")
    assert json.loads(call("image", "list", "--output", "json")[1]) == {"images": []}


def no_cloud_init(files: dict[str, str]) -> str:
    del files["usr/bin/cloud-init"]
    return "Expected: cloud-init, which sets users, keys and addresses Actual: none. Install cloud-init in it."


def no_kernel(files: dict[str, str]) -> str:
    for name in [name for name in files if "vmlinuz" in name]:
        del files[name]
    return "Expected: a kernel in boot/ Actual: none. Install a kernel package in it."


def no_loader(files: dict[str, str]) -> str:
    del files["usr/lib/shim/shimx64.efi.signed"]
    return (
        "Expected: a signed boot loader Actual: no usr/lib/shim/shimx64.efi.signed. Install shim-signed and "
        "grub-efi-amd64-signed (RHEL family: shim-x64 and grub2-efi-x64)."
    )


@pytest.mark.parametrize("leads", ["latest", "previous"])
def test_the_loader_of_ubuntu_is_behind_links(call: Call, tmp_path: Path, leads: str) -> None:
    files = {**UBUNTU, "etc/alternatives/shimx64.efi.signed": f"-> /{SHIM}.{leads}"}
    code, out, _ = call("image", "import", str(pack(tmp_path / "u.tar.zst", files)), "--name", "u", "--output", "json")
    assert (code, json.loads(out)["os"]) == (0, "ubuntu")


@pytest.mark.parametrize("leads", [f"/{SHIM}.gone", "/etc/alternatives/shimx64.efi.signed", "../../usr/lib"])
def test_a_loader_whose_link_leads_to_no_file_is_refused(call: Call, tmp_path: Path, leads: str) -> None:
    files = {**UBUNTU, "etc/alternatives/shimx64.efi.signed": f"-> {leads}"}
    code, _, err = call("image", "import", str(pack(tmp_path / "u.tar.zst", files)), "--name", "u")
    assert (code, f"Actual: no {SHIM}. Install shim-signed" in err) == (2, True)


@pytest.mark.parametrize("place", ["usr/sbin/mdadm", "sbin/mdadm", "usr/bin/mdadm"])
def test_an_image_with_mdadm_says_so(call: Call, tmp_path: Path, place: str) -> None:
    path = pack(tmp_path / "m.tar.zst", {**WHOLE, place: "m"})
    assert json.loads(call("image", "import", str(path), "--name", "m", "--output", "json")[1])["mdadm"] is True


def subiquity(files: dict[str, str]) -> str:
    """Ubuntu Server 24.04 after its first boot, and the names of 22.04 (canonical/subiquity, models/)."""
    files["etc/cloud/cloud-init.disabled"] = "Disabled by Ubuntu live installer after first boot.\n"
    files["etc/cloud/cloud.cfg.d/90-installer-network.cfg"] = "network:\n  version: 2\n"
    files["etc/cloud/cloud.cfg.d/99-installer.cfg"] = "datasource_list: [None]\n"
    files["etc/cloud/cloud.cfg.d/subiquity-disable-cloudinit-networking.cfg"] = "network: {config: disabled}\n"
    files["etc/netplan/00-installer-config.yaml"] = "network: {version: 2}\n"
    return (
        "Expected: no file that keeps cloud-init from the node's own settings Actual: etc/cloud/cloud-init.disabled, "
        "etc/cloud/cloud.cfg.d/90-installer-network.cfg, "
        "etc/cloud/cloud.cfg.d/subiquity-disable-cloudinit-networking.cfg, etc/netplan/00-installer-config.yaml. Run "
        "`sudo cloud-init clean --machine-id` on the machine of the image, remove those of these files that are still "
        "there, and make the archive again."
    )


def test_settings_of_cloud_init_beside_the_network_are_no_obstacle(call: Call, tmp_path: Path) -> None:
    files = {
        **WHOLE,
        "etc/cloud/cloud.cfg": "system_info:\n  network: {renderers: [netplan]}\n",
        "etc/cloud/cloud.cfg.d/90_dpkg.cfg": "datasource_list: [NoCloud]\n",
        "etc/cloud/cloud.cfg.d/91-odd.cfg": "network: {\n",
        "etc/cloud/cloud.cfg.d/README": "network: {config: disabled}\n",
        "etc/cloud/cloud.cfg.d/92-empty.cfg": "network:\n",
        "etc/netplan/50-cloud-init.yaml": "network: {version: 2}\n",
    }
    assert call("image", "import", str(pack(tmp_path / "x.tar.zst", files)), "--name", "mine")[0] == 0


def host_key(files: dict[str, str]) -> str:
    files["etc/ssh/ssh_host_rsa_key"] = "secret"
    return (
        "Expected: no SSH host keys: all nodes would have them Actual: 1, e.g. etc/ssh/ssh_host_rsa_key. "
        "Remove them from it."
    )


def no_system(files: dict[str, str]) -> str:
    files["usr/lib/os-release"] = "NAME=x\n"
    files |= {f"boot/efi/EFI/x/{name}": "x" for name in ("shimx64.efi", "grubx64.efi")}
    return "Expected: usr/lib/os-release with an ID Actual: none. Use a root file system of Linux."


@pytest.mark.parametrize("spoil", [no_cloud_init, no_kernel, no_loader, subiquity, host_key, no_system])
def test_an_image_that_no_node_could_boot_is_refused(
    spoil: Callable[[dict[str, str]], str], call: Call, tmp_path: Path
) -> None:
    files = dict(WHOLE)
    text = spoil(files)
    code, out, err = call("image", "import", str(pack(tmp_path / "x.tar.zst", files)), "--name", "mine")
    assert (code, out) == (2, "")
    assert err.splitlines()[1:] == [f"x.tar.zst - {text}"]
    assert list(store().folder.iterdir()) == []


def test_a_file_that_is_no_archive_is_refused_by_its_own_path(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.zst"
    path.write_bytes(b"not compressed")
    code, out, err = call("image", "import", str(path), "--name", "mine")
    assert (code, out) == (2, "")
    start = f"{path} - Expected: a root file system as tar, compressed with zstd Actual: "
    assert err.splitlines()[1].startswith(start)
    assert err.endswith("Make it with `tar --xattrs --acls --numeric-owner -C ROOT -c . | zstd -o FILE`.\n")


def test_a_file_that_is_not_there_is_refused(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "absent.tar.zst"
    code, _, err = call("image", "import", str(path), "--name", "mine")
    assert (code, err.splitlines()[1]) == (2, f"{path} - Expected: an archive Actual: no such file. Correct the path.")


@pytest.mark.parametrize("name", ["a/b", "Rocky9", "../x", "9x", "a" * 64])
def test_a_name_that_no_image_can_have_is_refused(name: str, call: Call, image: Path) -> None:
    code, out, err = call("image", "import", str(image), "--name", name)
    assert (code, out) == (2, "")
    expected = "lower-case letters, digits and -, with a letter first, at most 63"
    assert err.splitlines()[1] == f"--name {name} - Expected: {expected} Actual: another name. Correct it."


def test_an_unknown_image_is_refused_with_those_known(call: Call, image: Path) -> None:
    step = "Build it with `rackready image build x`, or import an archive."
    text = "image x - Expected: one of: {known} Actual: not in the image store. " + step + "\n"
    assert call("image", "show", "x") == (2, "", text.format(known="none yet"))
    call("image", "import", str(image), "--name", "mine")
    assert call("image", "show", "x") == (2, "", text.format(known="mine"))


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_image_is_refused(cut: bool, call: Call, image: Path) -> None:  # noqa: FBT001 - a parameter
    call("image", "import", str(image), "--name", "mine")
    archive = store().archive(store().find("mine"))
    size = archive.stat().st_size
    if cut:
        os.truncate(archive, 10)
    else:
        archive.unlink()
    actual = "10 bytes" if cut else "no such file"
    text = f"image mine: {archive} - Expected: {size} bytes Actual: {actual}. Build or import mine again.\n"
    assert call("image", "show", "mine") == (2, "", text)
    assert call("image", "list") == (2, "", text)


@pytest.mark.parametrize(
    ("document", "actual"),
    [
        (b"{}", "name: missing"),
        (b"\xff\xfe", "not JSON (expected value at line 1 column 1)"),
    ],
)
def test_a_damaged_record_is_refused(call: Call, image: Path, document: bytes, actual: str) -> None:
    call("image", "import", str(image), "--name", "mine")
    path = store().folder / "mine.json"
    path.write_bytes(document)
    text = f"{path} - Expected: the record of an image Actual: {actual}. Remove the file, then build or "
    assert call("image", "show", "mine") == (2, "", f"{text}import mine again.\n")


def test_an_unknown_recipe_is_refused(call: Call) -> None:
    step = "For another system, make an archive of its root file system and run `rackready image import`."
    text = f"image plan9 - Expected: one of: debian12 Actual: no recipe. {step}\n"
    assert call("image", "build", "plan9") == (2, "", text)


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put a fake mmdebstrap and zstd in place; return the suites that were built."""
    built: list[str] = []

    def mmdebstrap(target: Path, suite: str, **more: Any) -> None:
        assert set(DEBIAN12.packages) == set(more["packages"])
        built.append(suite)
        target.touch()

    def run(argv: list[str], **_more: object) -> None:
        pack(Path(argv[argv.index("-o") + 1]), {**WHOLE, "etc/build": str(len(built))})

    monkeypatch.setattr(builder, "mmdebstrap", mmdebstrap)
    monkeypatch.setattr(builder, "run", run)
    monkeypatch.setattr(builder, "require", lambda _names: None)
    return built


def test_an_image_is_built_once_and_again_when_asked(call: Call, debian: list[str]) -> None:
    code, out, err = call("image", "build", "debian12", "--output", "json")
    first = json.loads(out)
    count = len(DEBIAN12.packages)
    assert (code, first["recipe"]) == (0, DEBIAN12.digest)
    assert err == (
        f"image debian12: Debian bookworm with {count} packages (some minutes)\nimage debian12: compressing\n"
    )
    assert json.loads(call("image", "build", "debian12", "--output", "json")[1]) == first
    assert debian == ["bookworm"]
    again = json.loads(call("image", "build", "debian12", "--again", "--output", "json")[1])
    assert (len(debian), again["sha256"] == first["sha256"]) == (2, False)


def test_what_a_killed_build_left_goes(call: Call, debian: list[str]) -> None:
    left = store().folder / "build-old"
    left.mkdir(parents=True)
    (left / "root.tar").touch()
    call("image", "build", "debian12")
    assert debian == ["bookworm"]
    assert not left.exists()


def test_a_user_who_is_not_root_is_told_another_way(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.shutil, "which", lambda name: name)
    monkeypatch.setattr(tools.os, "geteuid", lambda: 1000)
    step = "Run it with sudo, or build on another machine and `rackready image import` the file."
    text = f"images - Expected: root: a root file system has files of many owners Actual: user 1000. {step}\n"
    assert call("image", "build", "debian12") == (2, "", text)


def test_programs_that_are_absent_are_named_with_their_packages(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.shutil, "which", lambda _name: None)
    text = "this machine - Expected: the programs mmdebstrap, zstd, setpriv, unshare Actual: not installed. "
    assert call("image", "build", "debian12") == (2, "", f"{text}Install the packages mmdebstrap, zstd, util-linux.\n")


def test_the_ramdisk_is_shown_with_its_kernel(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, bool]] = []

    def build(folder: Path, _say: object, *, again: bool) -> Ramdisk:
        asked.append((folder, again))
        return Ramdisk(folder, "6.1.0-10-amd64", "a" * 64, "b" * 64, 40_000_000, "i")

    monkeypatch.setattr(ramdisk, "build", build)
    folder = project_root() / ".rackready/ramdisk"
    code, out, err = call("image", "ramdisk")
    assert (code, err) == (0, "")
    assert out == f"{folder}/vmlinuz: Linux 6.1.0-10-amd64\n{folder}/ramdisk.img: 40.0 MB, SHA-256 {'b' * 64}\n"
    found = json.loads(call("image", "ramdisk", "--again", "--output", "json")[1])
    assert (found["kernel_release"], found["initrd_size"], found["initrd_sha256"]) == (
        "6.1.0-10-amd64",
        40_000_000,
        "b" * 64,
    )
    assert asked == [(folder, False), (folder, True)]
