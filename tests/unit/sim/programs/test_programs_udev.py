"""Names of RDMA devices: a system that names them by PCI address, and the role's program that gives the declared ones.

The names of rdma-core: linux-rdma/rdma-core @1840c1b, kernel-boot/rdma_rename.c, by_pci().
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from rackready.ondevice.nic_names import NicNames
from rackready_sim.programs.hwsim import firmware, kmsg, paths, pcitree, rdmatree, store
from rackready_sim.programs.hwsim import machine as parts
from rackready_sim.programs.hwsim.host import tree
from rackready_sim.programs.hwsim.nic import udev

from .conftest import Machine

WANTED = {"0000:18:00.0": {"infiniband": "mlx5_0"}, "0000:40:00.0": {"infiniband": "mlx5_3"}}


def boot(machine: Machine) -> None:
    pcitree.write(store.hardware())
    for nic in machine.state["nics"]:
        rdmatree.write(nic)
    (machine.root / "run").mkdir(exist_ok=True)
    udev.rdma()


def namer(machine: Machine, wanted: dict[str, dict[str, str]] | None = None) -> NicNames:
    def run(*argv: str) -> tuple[int, str]:
        assert argv[0] == "rdma"
        code, out, err = machine.run(udev.main, *argv[1:])
        return code, (out + err).strip()

    return NicNames(wanted or WANTED, run, machine.root)


def test_a_system_with_the_default_of_rdma_core_names_devices_by_address(machine: Machine) -> None:
    machine.inject("rdma-names")
    boot(machine)
    names = [nic["rdma_device"] for nic in parts.nics()]
    assert names[:3] == ["rocep24s0", "rocep64s0", "rocep79s0"]
    assert sorted(item.name for item in paths.at("/sys/class/infiniband").iterdir()) == sorted(names)
    assert namer(machine).differences() == [
        ("infiniband", "0000:18:00.0", "mlx5_0", "rocep24s0"),
        ("infiniband", "0000:40:00.0", "mlx5_3", "rocep64s0"),
    ]


def test_the_cards_get_their_declared_names_and_the_others_keep_theirs(machine: Machine) -> None:
    machine.inject("rdma-names")
    boot(machine)
    assert namer(machine).apply() == []
    assert namer(machine).differences() == []
    assert [nic["rdma_device"] for nic in parts.nics()][:3] == ["mlx5_0", "mlx5_3", "rocep79s0"]
    assert (paths.at("/sys/class/infiniband/mlx5_0/ports/1/counters") / "port_xmit_data").exists()


def test_names_that_cards_hold_crosswise_are_exchanged(machine: Machine) -> None:
    boot(machine)
    crossed = {"0000:18:00.0": {"infiniband": "mlx5_3"}, "0000:40:00.0": {"infiniband": "mlx5_0"}}
    assert namer(machine, crossed).apply() == []
    assert [nic["rdma_device"] for nic in parts.nics()][:2] == ["mlx5_3", "mlx5_0"]


def test_a_name_that_a_card_of_others_holds_is_freed(machine: Machine) -> None:
    boot(machine)
    assert namer(machine, {"0000:18:00.0": {"infiniband": "mlx5_3"}}).apply() == []
    assert [nic["rdma_device"] for nic in parts.nics()][:2] == ["mlx5_3", "rocep64s0f0"]


def test_a_boot_keeps_nothing_and_runs_the_programs_of_the_rules(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Sequence[str]] = []

    def run(argv: Sequence[str], **_: Any) -> None:
        ran.append(argv)

    monkeypatch.setattr(subprocess, "run", run)
    rules = paths.at("/etc/udev/rules.d/10-rackready-nic-names.rules")
    rules.parent.mkdir(parents=True)
    rules.write_text('# RUN+="no"\nACTION=="add", SUBSYSTEM=="infiniband", RUN+="/usr/bin/python3 namer names.json"\n')
    boot(machine)
    assert ran == [["/usr/bin/python3", "namer", "names.json"]] * 8
    udev.rename(parts.nics()[0], "rocep24s0")
    for name in ("_mount_all", "coldplug"):
        monkeypatch.setattr(firmware, name, lambda: None)
    monkeypatch.setattr(kmsg, "say", lambda _text: None)
    for name in ("own_folders", "cover_command_line", "cover_numa_balancing"):
        monkeypatch.setattr(tree, name, lambda: None)
    assert firmware.main([]) == 0
    assert parts.nics()[0]["rdma_device"] == "mlx5_0"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("dev", "set", "mlx5_77", "name", "mlx5_0"), "Wrong device name - mlx5_77\n"),
        (("dev", "set", "mlx5_0", "name", "mlx5_3"), "error: File exists\n"),
    ],
)
def test_rdma_refuses(machine: Machine, argv: tuple[str, ...], said: str) -> None:
    boot(machine)
    code, _, err = machine.run(udev.main, *argv)
    assert (code, err) == (1, said)
