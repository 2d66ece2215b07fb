"""Reasons for a reboot, as a node shows them: command line, modules, a newer kernel that is held."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.campaign.reboot import Reason, parsed
from rackready.ondevice import reboot_reasons as script
from rackready.ondevice.reboot_reasons import lacking

RUNNING = "6.1.0-39-amd64"
IMAGES = (
    f"linux-image-{RUNNING}\t6.1.148-1\thi \n"
    "linux-image-6.1.0-40-amd64\t6.1.153-1\t{state}\n"
    "linux-image-6.1.0-41-cloud-amd64\t6.1.158-1\thi \n"
    "linux-image-amd64\t6.1.153-1\thi \n"
)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node that needs no reboot: its declarations hold, and its newest kernel runs."""
    for name, text in {
        "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro iommu=pt quiet\n",
        "proc/sys/kernel/random/boot_id": "7f3c\n",
        "var/lib/rackready/boot.d/base.json": '{"options": ["iommu=pt"]}',
        "var/lib/rackready/boot.d/nvidia_driver.json": '{"unloaded": ["nouveau"]}',
        "boot/vmlinuz-6.1.0-40-amd64": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    answer(monkeypatch, images="")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=RUNNING))
    return tmp_path


def answer(monkeypatch: pytest.MonkeyPatch, *, images: str = "", modules: str = "") -> None:
    answers = {"lsmod": f"Module  Size  Used by\n{modules}", "dpkg-query": images, "grubby": ""}
    monkeypatch.setattr(script, "run", lambda argv: answers[argv[0]])


def reasons(node: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Reason, ...]:
    assert script.main(str(node)) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["boot_id"] == "7f3c"
    return parsed(text).reasons


def test_a_node_as_it_should_be_has_none(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reasons(node, capsys) == ()


def test_an_option_that_the_kernel_was_not_given(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "proc/cmdline").write_text("root=UUID=1 ro iommu=nopt quiet\n")
    (node / "var/lib/rackready/boot.d/other.json").write_text('{"options": ["hugepages=8", "iommu=pt"]}')
    assert reasons(node, capsys) == (
        Reason("kernel-option", "iommu=pt on the kernel command line", "iommu=nopt"),
        Reason("kernel-option", "hugepages=8 on the kernel command line", "not there"),
    )


@pytest.mark.parametrize(
    ("cmdline", "wanted", "found"),
    [
        ("ro iommu=pt", ["iommu=pt"], []),
        ("ro iommu=pt iommu=nopt", ["iommu=pt"], [("iommu=pt", ["iommu=pt", "iommu=nopt"])]),
        ("ro iommu=nopt iommu=pt", ["iommu=pt"], []),
        (
            "init_on_alloc=0 init-on-alloc=1",
            ["init_on_alloc=0"],
            [("init_on_alloc=0", ["init_on_alloc=0", "init-on-alloc=1"])],
        ),
        ("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=8", ["hugepagesz=1G", "hugepages=4"], []),
        ("console=ttyS0 console=tty1", ["console=ttyS0"], []),
        ("systemd.mask=a systemd.mask=b", ["systemd.mask=a"], []),
        ("x=1 x=2", ["x=1", "x=2"], []),
        ("x=2 x=1 x=3", ["x=1", "x=2"], [("x=2", ["x=2", "x=1", "x=3"])]),
        ("quiet", ["quiet", "nosmt"], [("nosmt", [])]),
    ],
)
def test_the_last_word_of_a_name_counts(cmdline: str, wanted: list[str], found: list[tuple[str, list[str]]]) -> None:
    assert lacking(cmdline.split(), wanted) == found


def card(monkeypatch: pytest.MonkeyPatch, current: str, *, tool: str = "mlxconfig") -> list[list[str]]:
    asked: list[list[str]] = []
    table = (
        "Configurations:                              Default         Current         Next Boot\n"
        f"*        LINK_TYPE_P1                        IB(1)           {current:<16}ETH(2)\n"
    )

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return {"lsmod": "Module  Size  Used by\n", tool: table}.get(argv[0], "")

    monkeypatch.setattr(script, "run", run)
    return asked


def test_an_interface_in_use_gets_its_name_with_a_boot(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = '{"0000:18:00.0": {"infiniband": "mlx5_0", "net": "enp24s0np0"}, "0000:40:00.0": {"infiniband": "mlx5_3"}}'
    (node / "var/lib/rackready/boot.d/nic_names.json").write_text(f'{{"names": {names}}}')
    assert reasons(node, capsys) == (), "a card that is not there is not for a boot"
    (node / "sys/bus/pci/devices/0000:18:00.0/net/enp24s0").mkdir(parents=True)
    (node / "sys/bus/pci/devices/0000:40:00.0/net/enp64s0").mkdir(parents=True)
    wanted = "interface enp24s0np0 on the network card 0000:18:00.0"
    assert reasons(node, capsys) == (Reason("nic-name", wanted, "enp24s0"),)
    (node / "sys/bus/pci/devices/0000:18:00.0/net/enp24s0").rename(
        node / "sys/bus/pci/devices/0000:18:00.0/net/enp24s0np0"
    )
    assert reasons(node, capsys) == ()


@pytest.mark.parametrize("tool", ["mlxconfig", "mstconfig"])
def test_a_parameter_of_a_network_card_waits_for_a_boot(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    (node / "var/lib/rackready/boot.d/nic_stack.json").write_text('{"nic": {"0000:18:00.0": {"LINK_TYPE_P1": 2}}}')
    asked = card(monkeypatch, "IB(1)", tool=tool)
    wanted = "LINK_TYPE_P1=2 in force on the network card 0000:18:00.0"
    assert reasons(node, capsys) == (Reason("nic-parameter", wanted, "IB(1)"),)
    assert [tool, "-d", "0000:18:00.0", "-e", "query", "LINK_TYPE_P1"] in asked
    card(monkeypatch, "ETH(2)", tool=tool)
    assert reasons(node, capsys) == ()


def test_a_module_of_another_build_is_loaded(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (node / "var/lib/rackready/boot.d/nic_stack_doca.json").write_text('{"fresh": ["mlx5_core"]}')
    (node / "sys/module/mlx5_core").mkdir(parents=True)
    (node / "sys/module/mlx5_core/srcversion").write_text("AAAA\n")
    answers = {"lsmod": "Module\n", "modinfo": "BBBB\n"}
    monkeypatch.setattr(script, "run", lambda argv: answers.get(argv[0], ""))
    assert reasons(node, capsys) == (Reason("module-stale", "kernel module mlx5_core of build BBBB", "AAAA"),)
    answers["modinfo"] = "AAAA\n"
    assert reasons(node, capsys) == ()


def test_nouveau_is_loaded(node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, modules="nouveau 2433024 0\n")
    assert reasons(node, capsys) == (Reason("module-loaded", "kernel module nouveau not loaded", "loaded"),)


@pytest.mark.parametrize(("state", "found"), [("hi ", 1), ("ii ", 0), ("hF ", 0)])
def test_a_newer_kernel_counts_when_it_is_installed_and_held(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, state: str, found: int
) -> None:
    answer(monkeypatch, images=IMAGES.format(state=state))
    expected = Reason(
        "newer-kernel", "kernel 6.1.0-40-amd64, the newest that is installed and held", f"kernel {RUNNING}"
    )
    assert reasons(node, capsys) == ((expected,) if found else ())


def test_a_kernel_that_is_not_in_boot_cannot_be_booted(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, images=IMAGES.format(state="hi "))
    (node / "boot/vmlinuz-6.1.0-40-amd64").unlink()
    assert reasons(node, capsys) == ()


def test_a_torn_declaration_is_passed_over(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "var/lib/rackready/boot.d/base.json").write_text('{"options": ["iommu')
    (node / "proc/cmdline").write_text("ro\n")
    assert reasons(node, capsys) == ()


def test_a_node_without_dpkg_has_no_newer_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.newer_kernel(str(tmp_path)) == []


EL9, NEWER = "5.14.0-503.11.1.el9_5.x86_64", "5.14.0-503.14.1.el9_5.x86_64"
LOCK = "kernel-core-0:5.14.0-503.14.1.el9_5.*\n"


@pytest.mark.parametrize(
    ("entry", "lock", "order", "found"),
    [
        (NEWER, LOCK, "1", 1),
        (NEWER, "", "1", 0),
        (NEWER, LOCK, "-1", 0),
        (EL9, LOCK, "0", 0),
        (f"{NEWER}+debug", LOCK, "1", 0),
    ],
    ids=["newer", "not locked", "older", "the one that runs", "another flavour"],
)
def test_the_default_boot_entry_of_rhel_counts_when_its_kernel_is_newer_and_locked(
    node: Path, monkeypatch: pytest.MonkeyPatch, entry: str, lock: str, order: str, found: int
) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return {"grubby": f"/boot/vmlinuz-{entry}\n", "rpm": f"{order}\n"}.get(argv[0], "")

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=EL9))
    (node / "etc/dnf/plugins").mkdir(parents=True)
    (node / "etc/dnf/plugins/versionlock.list").write_text(lock)
    (node / f"boot/vmlinuz-{entry}").write_text("")
    expected = script.reason("newer-kernel", f"kernel {NEWER}, the newest that is installed and held", f"kernel {EL9}")
    assert script.newer_kernel(str(node)) == [expected] * found
    if found:
        assert ["rpm", "--eval", f'%{{lua:print(rpm.vercmp("{NEWER}", "{EL9}"))}}'] in asked
