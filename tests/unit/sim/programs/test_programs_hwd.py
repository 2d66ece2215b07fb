"""The machine's devices while it runs: what changes is followed at once, what does not is left alone."""

from __future__ import annotations

import pytest

from rackready_sim.programs.hwsim import hwd, paths, pcitree, rdmatree

from .conftest import Machine


def carrier(up: str) -> None:
    path = paths.at("/sys/class/net/enp24s0np0/carrier")
    path.write_text(f"{up}\n")


def kernel_log() -> str:
    log = paths.at("/run/hw/kmsg.log")
    return log.read_text() if log.exists() else ""


def test_a_link_that_comes_and_goes_is_followed(machine: Machine) -> None:
    nic = machine.state["nics"][0]
    carrier("0")
    rdmatree.write(nic)
    devices = hwd.Devices()
    devices.step()
    assert rdmatree.folder(nic).joinpath("ports/1/state").read_text() == "1: DOWN\n"
    carrier("1")
    devices.step()
    assert rdmatree.folder(nic).joinpath("ports/1/state").read_text() == "4: ACTIVE\n"
    assert "enp24s0np0: Link up" in kernel_log()
    carrier("0")
    devices.step()
    assert rdmatree.folder(nic).joinpath("ports/1/state").read_text() == "1: DOWN\n"
    assert rdmatree.folder(nic).joinpath("ports/1/counters/link_downed").read_text() == "1\n"


def test_what_stays_is_looked_into_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(rdmatree, "refresh", lambda nic: looked.append(nic["rdma_device"]))
    monkeypatch.setattr(pcitree, "write", lambda _state: looked.append("pci"))
    devices = hwd.Devices()
    for _ in range(3):
        devices.step()
    assert len(looked) == len(machine.state["nics"])
    machine.state["nics"][0]["link"] = "down"
    machine.save()
    looked.clear()
    devices.step()
    assert looked == ["pci", *(nic["rdma_device"] for nic in machine.state["nics"])], (
        "the hardware changed: everything is looked into again"
    )


def test_an_error_that_is_injected_reaches_the_kernel_log_once(machine: Machine) -> None:
    devices = hwd.Devices()
    devices.step()
    machine.state["xids"].append({"pci": machine.state["gpus"][2]["pci"], "code": 79})
    machine.save()
    devices.step()
    devices.step()
    assert kernel_log().count("Xid") == 1


def test_gids_that_a_nic_lost_are_emptied(machine: Machine) -> None:
    """The kernel keeps the entry and shows zeros: a stale one would offer RoCE v2 where the NIC has none."""
    nic = machine.state["nics"][0]
    rdmatree.write(nic)
    table = rdmatree.folder(nic) / "ports/1"
    assert (table / "gid_attrs/types/3").read_text() == "RoCE v2\n"
    rdmatree.refresh({**nic, "roce_v1_only": True})
    assert [(table / f"gid_attrs/types/{index}").read_text() for index in range(4)] == [
        "IB/RoCE v1\n",
        "IB/RoCE v1\n",
        "\n",
        "\n",
    ]
    assert (table / "gids/3").read_text() == "0000:0000:0000:0000:0000:0000:0000:0000\n"


def test_device_control_keeps_what_software_wrote_until_the_next_boot(machine: Machine) -> None:
    pcitree.write(machine.state)
    nic, other = (paths.at(f"/sys/bus/pci/devices/{item['pci']}/config") for item in machine.state["nics"][:2])
    nic.write_bytes(nic.read_bytes()[:0x68] + b"\x37\x29" + nic.read_bytes()[0x6A:])
    pcitree.write(machine.state)
    assert (nic.read_bytes()[0x68:0x6A], other.read_bytes()[0x68:0x6A]) == (b"\x37\x29", b"\x37\x59")
    nic.unlink()  # a boot makes the tree anew
    pcitree.write(machine.state)
    assert nic.read_bytes()[0x68:0x6A] == b"\x37\x59"
