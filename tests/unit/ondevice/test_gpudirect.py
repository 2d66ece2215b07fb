"""How cards reach GPU memory: the rules of NVIDIA's documentation, and what prepares nvidia_peermem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.gpudirect import KEPT, GpuDirect

OFED = "ffffffffc0a12340 t ib_register_peer_memory_client\t[ib_core]\n"


def node(root: Path, release: str = "6.8.0-45-generic", *, ofed: bool = False, loads: bool = True) -> GpuDirect:
    (root / "proc").mkdir()
    (root / "proc/kallsyms").write_text("ffffffffc0a00000 t ib_register_client\t[ib_core]\n" + (OFED if ofed else ""))
    (root / KEPT).parent.mkdir(parents=True)

    def run(argv: Sequence[str]) -> Done:
        if argv[0] == "modinfo":
            return Done(0, "Dual MIT/GPL\n")
        if loads:
            (root / "sys/module/nvidia_peermem").mkdir(parents=True)
            return Done(0, "")
        return Done(1, "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n")

    return GpuDirect(run, root, release)


@pytest.mark.parametrize(
    ("release", "opened", "ofed", "way"),
    [
        ("6.8.0-45-generic", True, False, "dmabuf"),
        ("6.8.0-45-generic", True, True, "dmabuf"),
        ("5.12.0-1-amd64", True, False, "dmabuf"),
        ("5.11.0-49-generic", True, True, "peermem"),
        ("6.8.0-45-generic", False, True, "peermem"),
    ],
)
def test_the_way_follows_the_rules(tmp_path: Path, release: str, *, opened: bool, ofed: bool, way: str) -> None:
    assert node(tmp_path, release, ofed=ofed).way(opened=opened) == way


def test_an_ofed_driver_that_is_about_to_be_installed_counts(tmp_path: Path) -> None:
    assert node(tmp_path).way(opened=False, coming=True) == "peermem"


def test_a_module_that_waits_for_the_boot_of_the_new_driver_is_kept_and_not_loaded(tmp_path: Path) -> None:
    missing = ["kernel module nvidia_peermem not loaded", f"/{KEPT} without nvidia_peermem"]
    assert node(tmp_path, "5.4.0-150-generic").ensure(opened=True, coming=True) == ("peermem", missing)
    assert (tmp_path / KEPT).read_text() == "nvidia_peermem\n"
    assert not (tmp_path / "sys/module/nvidia_peermem").exists()


@pytest.mark.parametrize(
    ("release", "opened", "flavour"),
    [("6.8.0-45-generic", False, "proprietary"), ("5.4.0-150-generic", True, "open")],
)
def test_a_node_without_any_way_is_refused(tmp_path: Path, release: str, flavour: str, *, opened: bool) -> None:
    with pytest.raises(NodeProblem) as caught:
        node(tmp_path, release).ensure(opened=opened)
    assert str(caught.value) == (
        "Expected: open NVIDIA modules on kernel 5.12 or newer (dma-buf), or an OFED driver (nvidia_peermem) "
        f"Actual: {flavour} modules, kernel {release}, the kernel's own RDMA driver. Use a version set with open "
        "modules and a kernel of 5.12 or newer, or DOCA-OFED (software.nic_stack: doca). Nothing was changed."
    )
    assert not (tmp_path / KEPT).exists()


def test_dmabuf_needs_no_module(tmp_path: Path) -> None:
    assert node(tmp_path).ensure(opened=True) == ("dmabuf", [])
    assert not (tmp_path / KEPT).exists()


def test_peermem_is_loaded_and_kept_once(tmp_path: Path) -> None:
    old = node(tmp_path, "5.4.0-150-generic", ofed=True)
    wrong = ["kernel module nvidia_peermem not loaded", f"/{KEPT} without nvidia_peermem"]
    assert old.ensure(opened=True, check=True) == ("peermem", wrong)
    assert not (tmp_path / KEPT).exists()
    assert old.ensure(opened=True) == ("peermem", wrong)
    assert (tmp_path / KEPT).read_text() == "nvidia_peermem\n"
    assert old.ensure(opened=True) == ("peermem", [])


def test_a_module_that_was_built_without_ofed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        node(tmp_path, "5.4.0-150-generic", ofed=True, loads=False).ensure(opened=True)
    assert str(caught.value) == (
        "Expected: kernel module nvidia_peermem loaded Actual: exit 1: modprobe: ERROR: could not insert "
        "'nvidia_peermem': Invalid argument. Build NVIDIA's modules with this OFED (`dkms install --force "
        "nvidia/VERSION`), then run again."
    )


def test_a_driver_of_the_other_flavour_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        node(tmp_path, ofed=True).ensure(opened=False)
    assert str(caught.value) == (
        "Expected: proprietary NVIDIA modules Actual: license Dual MIT/GPL. Run role nvidia_driver first; it installs "
        "the flavour of the version set."
    )
