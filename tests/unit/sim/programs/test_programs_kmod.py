from __future__ import annotations

import functools

import pytest

from rackready_sim.programs.hwsim import ctk, firmware, kmod, kmsg, paths, store

from .conftest import VERSION, Machine


def test_a_module_that_was_not_built_cannot_be_loaded(machine: Machine) -> None:
    code, _, err = machine.run(kmod.modprobe, "nvidia")
    assert code == 1
    assert err == f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{paths.kernel()}\n"


def test_loading_takes_the_version_on_disk_and_keeps_it(machine: Machine) -> None:
    machine.install()
    assert machine.run(kmod.modprobe, "nvidia-uvm")[0] == 0
    machine.install("595.91.07")
    assert store.runtime()["modules"]["nvidia"]["version"] == VERSION
    assert machine.run(kmod.modinfo, "-F", "version", "nvidia")[1] == "595.91.07\n"
    assert "nvidia              14372864  1 nvidia_uvm" in machine.run(kmod.lsmod)[1]


def test_peer_memory_needs_ofed_s_driver(machine: Machine) -> None:
    machine.install()
    refused = "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n"
    assert machine.run(kmod.modprobe, "nvidia_peermem") == (1, "", refused)
    paths.module_file("mlx5_core").touch()
    assert machine.run(kmod.modprobe, "nvidia_peermem")[0] == 0


def test_a_module_in_use_stays(machine: Machine) -> None:
    machine.install()
    machine.run(kmod.modprobe, "-a", "nvidia", "nvidia_uvm")
    assert machine.run(kmod.rmmod, "nvidia")[2] == "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm\n"
    machine.run(kmod.rmmod, "nvidia_uvm")
    with store.change() as runtime:
        runtime["clients"]["nv-hostengine"] = 1
    assert machine.run(kmod.rmmod, "nvidia")[:1] == (1,)
    with store.change() as runtime:
        runtime["clients"].clear()
    assert machine.run(kmod.rmmod, "nvidia")[0] == 0
    assert "nvidia" not in store.runtime()["modules"]


def test_nouveau_holds_the_gpus_unless_it_is_denied(machine: Machine) -> None:
    machine.install()
    machine.inject("nouveau-loaded")
    firmware.coldplug()
    assert machine.run(kmod.modprobe, "nvidia")[2] == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    machine.run(kmod.rmmod, "nouveau")
    assert machine.run(kmod.modprobe, "nvidia")[0] == 0
    folder = paths.at("/etc/modprobe.d")
    folder.mkdir(parents=True)
    (folder / "deny.conf").write_text("blacklist nouveau\n")
    assert firmware.denied("nouveau")


def test_the_driver_is_loaded_at_boot_once_it_is_built(machine: Machine) -> None:
    firmware.coldplug()
    assert "nvidia" not in store.runtime()["modules"]
    machine.install()
    firmware.coldplug()
    assert store.runtime()["modules"]["nvidia"]["version"] == VERSION


def test_an_xid_reaches_the_kernel_log(machine: Machine) -> None:
    machine.inject("gpu-lost", gpu=2)
    firmware.coldplug()
    out = machine.run(kmsg.main)[1]
    assert "NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in out


def test_device_trees(machine: Machine) -> None:
    machine.inject("pcie-width", gpu=1, width=4)
    firmware.lay_out()
    devices = paths.at("/sys/bus/pci/devices")
    assert (devices / "0000:43:00.0/current_link_width").read_text() == "4\n"
    assert (devices / "0000:43:00.0/config").read_bytes()[:4] == bytes.fromhex("de103023")
    port = paths.at("/sys/class/infiniband/mlx5_3/ports/1")
    assert (port / "state").read_text() == "4: ACTIVE\n"
    assert (port / "rate").read_text() == "400 Gb/sec (4X NDR)\n"
    assert (paths.at("/sys/class/infiniband/mlx5_3/device") / "numa_node").read_text() == "0\n"


def test_cdi_has_the_control_devices_that_exist(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module makes its own devices: nvidia-ctk makes them, of loaded modules, and leaves out what is not there."""

    def node(name: str, *_: int) -> None:
        paths.at(f"/dev/{name}").parent.mkdir(parents=True, exist_ok=True)
        paths.at(f"/dev/{name}").touch()

    toolkit = functools.partial(ctk.main, version="1.20.0-1")
    monkeypatch.setattr(kmod, "_node", node)
    machine.install()
    machine.run(kmod.modprobe, "nvidia")
    code, _, err = machine.run(toolkit, "system", "create-device-nodes", "--control-devices")
    assert (code, "nvidia-uvm: failed to determine major: invalid device node" in err) == (1, True)
    machine.run(kmod.modprobe, "nvidia_uvm")
    assert not paths.at("/dev/nvidia-uvm").exists()
    assert "/dev/nvidia-uvm" not in machine.run(toolkit, "cdi", "generate")[1]
    assert machine.run(toolkit, "system", "create-device-nodes", "--control-devices")[0] == 0
    lines = machine.run(toolkit, "cdi", "generate")[1].splitlines()
    assert {"    - path: /dev/nvidia-uvm", "    - path: /dev/nvidiactl"} <= set(lines)
    assert "nvidia_modeset" not in store.runtime()["modules"]
    assert machine.run(toolkit, "system", "create-device-nodes", "--load-kernel-modules")[0] == 0
    assert "nvidia_modeset" in store.runtime()["modules"]
