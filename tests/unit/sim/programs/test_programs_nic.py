"""Parameters of network cards: the programs of MFT, and what brings a card to its values by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.nic_config import DECLARED, NicConfig
from rackready_sim.programs.hwsim import paths, pcitree, rdmatree, store
from rackready_sim.programs.hwsim.nic import fwreset, mlxconfig, nv

from .conftest import Machine

PCI = "0000:40:00.0"
"""NIC of rail 2."""


class Node:
    """Answers as the node's shell would, and remembers the programs, and what ``mlxfwreset`` itself started."""

    def __init__(self, machine: Machine, commands: list[list[str]]) -> None:
        self.machine, self.commands, self.ran = machine, commands, list[str]()

    def __call__(self, argv: Sequence[str]) -> Done:
        programs: dict[str, Callable[..., int]] = {"mlxconfig": mlxconfig.main, "mlxfwreset": fwreset.main}
        if argv[0] == "ip":
            return Done(0, "")
        if "query" not in argv:
            self.ran.append(" ".join(argv))
        code, out, _ = self.machine.run(programs[argv[0]], *argv[1:])
        return Done(code, out)

    def nics(self) -> NicConfig:
        return NicConfig(self, self.machine.root, self.machine.root / "lib", back_s=0.1)


@pytest.fixture
def node(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Node:
    commands = list[list[str]]()

    def command(argv: list[str], **_more: object) -> CompletedProcess[bytes]:
        commands.append(argv)
        return CompletedProcess(argv, 0)

    monkeypatch.setattr(fwreset.subprocess, "run", command)
    monkeypatch.setattr(fwreset.kmsg, "say", lambda _text: None)
    tool = paths.at("/usr/bin/mlxconfig")
    tool.parent.mkdir(parents=True)
    tool.touch()
    pcitree.write(machine.state)
    for nic in machine.state["nics"]:
        rdmatree.write(nic)
    return Node(machine, commands)


def refusal(node: Node, wanted: dict[str, dict[str, int]]) -> str:
    with pytest.raises(NodeProblem) as caught:
        node.nics().ensure(wanted, 0, "")
    return str(caught.value)


def layer(rail: int) -> str:
    return paths.at(f"/sys/class/infiniband/mlx5_{rail + 1}/ports/1/link_layer").read_text().strip()


WANTED = {PCI: {"LINK_TYPE_P1": 2, "ATS_ENABLED": 0}}


def test_the_table_has_the_layout_of_the_tool(node: Node) -> None:
    code, out, _ = node.machine.run(mlxconfig.main, "-d", PCI, "-e", "query", "LINK_TYPE_P1", "ATS_ENABLED")
    assert code == 0
    rows = out.splitlines()
    assert rows[1:3] == ["Device #1:", "----------"]
    table = [" ".join(row.split()) for row in rows if "P1" in row or "ATS" in row or row.startswith("Config")]
    assert table == [
        "Configurations: Default Current Next Boot",
        "* LINK_TYPE_P1 IB(1) ETH(2) ETH(2)",
        "ATS_ENABLED False(0) False(0) False(0)",
    ]
    assert rows[-1] == "The '*' shows parameters with next value different from default/current value."
    assert [row.index("ETH(2)") for row in rows if "LINK_TYPE" in row] == [89]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-d", "0000:99:00.0", "-e", "query"], "-E- Failed to open device: 0000:99:00.0. No such device.\n"),
        (["-d", PCI, "query", "NONSENSE"], "-E- Unknown Parameter NONSENSE\n"),
        (["-d", PCI, "query", "MAX_ACC_OUT_READ"], "-E- The Device doesn't support MAX_ACC_OUT_READ parameter\n"),
        (["-d", PCI, "explode"], "-E- invalid command.\n"),
    ],
)
def test_errors_of_the_tool_end_with_3(node: Node, words: list[str], said: str) -> None:
    code, out, _ = node.machine.run(mlxconfig.main, *words)
    assert code == 3
    assert out.endswith(said)


def test_cards_that_are_as_wanted_are_only_read(node: Node) -> None:
    assert node.nics().ensure(WANTED, 0, "") == []
    assert node.ran == []


def test_a_card_from_the_factory_gets_its_link_type_with_one_reset(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    rdmatree.refresh(node.machine.state["nics"][1])
    assert layer(2) == "InfiniBand"
    nics = node.nics()
    found = nics.ensure(WANTED, 0, "")
    assert [(str(item), item.actual) for item in found] == [(f"{PCI} LINK_TYPE_P1=2", "IB(1)")]
    assert node.ran == [f"mlxconfig -d {PCI} -y set LINK_TYPE_P1=2", f"mlxfwreset -d {PCI} reset --level 3 --yes"]
    assert layer(2) == "Ethernet"
    assert (nics.pending, nics.ensure(WANTED, 0, "")) == ([], [])


def test_a_dry_run_tells_the_difference_and_changes_nothing(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    found = node.nics().ensure(WANTED, 0, "", check=True)
    assert [str(item) for item in found] == [f"{PCI} LINK_TYPE_P1=2"]
    assert node.ran == []
    assert not (node.machine.root / "lib").exists()


def test_a_written_value_waits_for_the_reset(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    nic = node.machine.state["nics"][1]
    nv.set_next(nic, {"LINK_TYPE_P1": 2})
    assert (nv.current(nic, "LINK_TYPE_P1"), nv.following(nic, "LINK_TYPE_P1")) == (1, 2)
    node.nics().ensure(WANTED, 0, "")
    assert node.ran == [f"mlxfwreset -d {PCI} reset --level 3 --yes"]


def test_a_value_outlives_the_power_of_the_machine(node: Node) -> None:
    nic = node.machine.state["nics"][1]
    nv.set_next(nic, {"ATS_ENABLED": 1})
    store.write(paths.at("/run/hw/runtime.json"), json.dumps(store.fresh()))
    assert nv.current(nic, "ATS_ENABLED") == 1


def test_a_refused_reset_becomes_a_reason_for_a_reboot_and_goes_after_it(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    node.machine.inject("nic-reset-refused", nic=2)
    nics, declared = node.nics(), node.machine.root / "lib" / DECLARED
    assert len(nics.ensure(WANTED, 0, "")) == 1
    said = "-E- Reset-level '3' is not supported in the current state of this device"
    assert nics.notes == [f"{PCI}: not reset ({said}); the next boot brings its values"]
    assert json.loads(declared.read_text()) == {"nic": {PCI: {"LINK_TYPE_P1": 2}}}
    assert node.commands == [], "only the operator reboots the node"
    store.write(paths.at("/run/hw/runtime.json"), json.dumps(store.fresh()))
    assert node.nics().ensure(WANTED, 0, "") == []
    assert not declared.exists()


@pytest.mark.parametrize("words", [[], ["--level", "4"], ["-l", "4"]])
def test_the_tool_itself_reboots_at_level_4_or_with_no_level_where_it_has_no_other(
    node: Node, words: list[str]
) -> None:
    node.machine.inject("nic-reset-refused", nic=2)
    code, out, _ = node.machine.run(fwreset.main, "-d", PCI, "reset", *words, "--yes")
    assert (code, node.commands) == (0, [["reboot"]])
    assert "\n4: Warm Reboot\n" in out
    assert out.endswith(f"-I- {'Sending reboot command to machine':<40}-Done\n-I- FW was loaded successfully.\n")


def test_a_card_with_the_default_route_is_not_reset(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    netdev = node.machine.state["nics"][1]["netdev"]
    route = paths.at("/proc/net/route")
    route.parent.mkdir(parents=True)
    route.write_text(f"Iface\tDestination\tGateway\n{netdev}\t00000000\t010200C0\n")
    nics = node.nics()
    nics.ensure(WANTED, 0, "")
    assert nics.notes == [f"{PCI}: carries the default route, so it is not reset; the next boot brings it"]
    assert node.ran == [f"mlxconfig -d {PCI} -y set LINK_TYPE_P1=2"]


@pytest.mark.parametrize(
    ("table", "local", "address"),
    [
        ("tcp", "0301A8C0:0016", "inet 192.168.1.3/24"),
        ("tcp6", "0000000000000000FFFF00000301A8C0:0016", "inet 192.168.1.3/24"),
        ("tcp6", "000080FE00000000FF005450DCB5B8FE:0016", "inet6 fe80::5054:ff:feb8:b5dc/64"),
    ],
)
@pytest.mark.parametrize(("state", "kept"), [("01", True), ("0A", False)])
def test_a_card_that_carries_a_login_is_not_reset(  # noqa: PLR0913 - a table
    node: Node, monkeypatch: pytest.MonkeyPatch, table: str, local: str, address: str, state: str, *, kept: bool
) -> None:
    node.machine.inject("nic-link-type", nic=2)
    place = paths.at(f"/proc/net/{table}")
    place.parent.mkdir(parents=True)
    place.write_text(f"  sl  local_address rem_address   st\n   0: {local} {local} {state} 00000000:00000000\n")
    told = Done(0, f"3: enp41s0np0    {address} scope global enp41s0np0\\       valid_lft forever\n")
    nics = node.nics()
    monkeypatch.setattr(nics, "run", lambda argv: told if argv[0] == "ip" else node(argv))
    nics.ensure(WANTED, 0, "")
    said = [f"{PCI}: carries TCP connections, so it is not reset; the next boot brings it"]
    assert nics.notes == (said if kept else [])
    assert len(node.ran) == (1 if kept else 2)


def test_a_reason_for_a_boot_is_kept_when_another_card_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.machine.inject("nic-link-type", nic=2)
    node.machine.inject("nic-reset-refused", nic=2)
    nics = node.nics()

    def refuse(_wanted: dict[str, dict[str, int]]) -> None:
        raise NodeProblem("another card in order", "it is not", "Replace it.")

    monkeypatch.setattr(nics, "_judge", refuse)
    with pytest.raises(NodeProblem):
        nics.ensure(WANTED, 0, "")
    declared = node.machine.root / "lib" / DECLARED
    assert json.loads(declared.read_text()) == {"nic": {PCI: {"LINK_TYPE_P1": 2}}}


def test_a_card_that_keeps_its_values_is_refused(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    node.machine.inject("nic-parameters-locked", nic=2)
    argv = f"mlxconfig -d {PCI} -y set LINK_TYPE_P1=2"
    assert refusal(node, WANTED) == (
        f"Expected: {PCI} LINK_TYPE_P1=2 written for the next boot Actual: IB(1). Run `{argv}` on the node and read "
        "its output; the card may be locked by its vendor."
    )
    assert node.ran == [argv]


def test_a_card_that_a_program_has_open_is_not_touched(node: Node) -> None:
    node.machine.inject("nic-link-type", nic=2)
    for name, text in {"sys/class/infiniband_verbs/uverbs1/ibdev": "mlx5_3\n", "proc/4711/comm": "python3\n"}.items():
        (node.machine.root / name).parent.mkdir(parents=True)
        (node.machine.root / name).write_text(text)
    (node.machine.root / "proc/4711/fd").mkdir()
    (node.machine.root / "proc/4711/fd/5").symlink_to("/dev/infiniband/uverbs1")
    assert refusal(node, WANTED) == (
        f"Expected: {PCI} open in no program, for other values and a reset Actual: process 4711 (python3). Drain the "
        "node and end what uses its network cards; then run again. Nothing was changed."
    )
    assert node.ran == []


def test_a_parameter_that_another_one_hides_is_written_after_it(node: Node) -> None:
    wanted = {PCI: {"ADVANCED_PCI_SETTINGS": 1, "MAX_ACC_OUT_READ": 44}}
    node.nics().ensure(wanted, 0, "")
    assert node.ran == [
        f"mlxconfig -d {PCI} -y set ADVANCED_PCI_SETTINGS=1",
        f"mlxconfig -d {PCI} -y set MAX_ACC_OUT_READ=44",
        f"mlxfwreset -d {PCI} reset --level 3 --yes",
    ]
    assert node.nics().ensure(wanted, 0, "") == []


def lacking(node: Node, *names: str) -> None:
    node.machine.state["nics"][1]["nv_lacks"] = list(names)
    node.machine.save()


def test_a_parameter_that_the_firmware_lacks_is_left_out_and_said(node: Node) -> None:
    lacking(node, "ATS_ENABLED")
    nics = node.nics()
    assert nics.ensure(WANTED, 0, "") == []
    assert nics.notes == [f"{PCI}: its firmware has no ATS_ENABLED; left out"]


def test_a_card_of_one_fixed_type_is_compared_by_its_link(node: Node) -> None:
    lacking(node, "LINK_TYPE_P1")
    assert node.nics().ensure(WANTED, 0, "") == []
    assert refusal(node, {PCI: {"LINK_TYPE_P1": 1}}) == (
        f"Expected: {PCI} with link layer InfiniBand Actual: Ethernet. Replace the card, or correct fabric.kind in "
        "site.yml: this card's link type is fixed."
    )


def test_an_address_without_a_card_is_refused(node: Node) -> None:
    assert refusal(node, {"0000:a9:00.0": {"ATS_ENABLED": 0}}) == (
        "Expected: a network card at 0000:a9:00.0 Actual: none. Check `lspci` on the node, the card's slot and the "
        "platform profile."
    )


def test_a_card_of_another_vendor_is_left_alone(node: Node) -> None:
    paths.at(f"/sys/bus/pci/devices/{PCI}/vendor").write_text("0x14e4\n")
    nics = node.nics()
    assert nics.ensure(WANTED, 0, "") == []
    assert nics.notes == [f"{PCI}: vendor 0x14e4; mlxconfig works with NVIDIA's cards alone"]


def failing(root: Path, out: str, code: int = 3) -> NicConfig:
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/mstconfig").touch()
    (root / f"sys/bus/pci/devices/{PCI}").mkdir(parents=True)
    (root / f"sys/bus/pci/devices/{PCI}/vendor").write_text("0x15b3\n")
    return NicConfig(lambda _argv: Done(code, out), root, root / "lib")


def test_a_failed_reading_is_no_card_without_parameters(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        failing(tmp_path, "-E- Failed to open device\n").ensure(WANTED, 0, "")
    assert str(caught.value) == (
        f"Expected: the parameters of {PCI} Actual: exit 3: -E- Failed to open device. Run `mstconfig -d {PCI} -e "
        "query` on the node and read its output."
    )


LOCKED = "exit 3: -E- Failed to open the device, in a kernel in lockdown (integrity)"
"""As mstconfig says it (Mellanox/mstflint issues 416 and 1371)."""


def locked(root: Path, layer: str) -> NicConfig:
    nics = failing(root, "-E- Failed to open the device\n")
    (root / f"sys/bus/pci/devices/{PCI}/infiniband/mlx5_3").mkdir(parents=True)
    (root / "sys/class/infiniband/mlx5_3/ports/1").mkdir(parents=True)
    (root / "sys/class/infiniband/mlx5_3/ports/1/link_layer").write_text(f"{layer}\n")
    (root / "sys/kernel/security").mkdir(parents=True)
    (root / "sys/kernel/security/lockdown").write_text("none [integrity] confidentiality\n")
    return nics


@pytest.mark.parametrize("check", [False, True])
def test_what_lockdown_keeps_from_the_tools_is_not_reported(tmp_path: Path, *, check: bool) -> None:
    nics = locked(tmp_path, "Ethernet")
    assert nics.ensure(WANTED, 0, "", check=check) == []
    assert nics.notes == [f"{PCI}: ATS_ENABLED not reported, 0 wanted: {LOCKED}"]


def test_a_link_layer_that_only_a_locked_tool_could_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        locked(tmp_path, "InfiniBand").ensure(WANTED, 0, "")
    assert str(caught.value) == (
        f"Expected: {PCI} with link layer Ethernet Actual: InfiniBand; {LOCKED}. Load a signed module for the firmware "
        "tools (`mst start` of MFT, or mstflint_access of mstflint), or turn Secure Boot off; then run again: "
        "docs/howto/nic-stack.md."
    )


def test_a_card_without_a_port_has_no_link_type_to_compare(tmp_path: Path) -> None:
    nics = locked(tmp_path, "Ethernet")
    (tmp_path / f"sys/bus/pci/devices/{PCI}/infiniband/mlx5_3").rmdir()
    assert nics.ensure(WANTED, 0, "") == []
    assert nics.notes[0] == f"{PCI}: LINK_TYPE_P1 not reported, 2 wanted: {LOCKED}"


def test_a_kernel_that_could_be_locked_and_is_not_excuses_no_failed_reading(tmp_path: Path) -> None:
    nics = locked(tmp_path, "Ethernet")
    (tmp_path / "sys/kernel/security/lockdown").write_text("[none] integrity confidentiality\n")
    with pytest.raises(NodeProblem, match="Run `mstconfig"):
        nics.ensure(WANTED, 0, "")


def test_a_locked_kernel_whose_tools_read_the_cards_is_as_any_other(node: Node) -> None:
    """With a signed module: mstflint's kernel/README.txt."""
    paths.at("/sys/kernel/security").mkdir(parents=True)
    paths.at("/sys/kernel/security/lockdown").write_text("none [integrity] confidentiality\n")
    node.machine.inject("nic-link-type", nic=2)
    nics = node.nics()
    assert [str(item) for item in nics.ensure(WANTED, 0, "")] == [f"{PCI} LINK_TYPE_P1=2"]
    assert (nics.notes, node.ran[0]) == ([], f"mlxconfig -d {PCI} -y set LINK_TYPE_P1=2")


def test_a_node_without_the_tools_is_refused(tmp_path: Path) -> None:
    nics = failing(tmp_path, "")
    (tmp_path / "usr/bin/mstconfig").unlink()
    with pytest.raises(NodeProblem) as caught:
        nics.ensure(WANTED, 0, "")
    assert str(caught.value) == (
        "Expected: mlxconfig of MFT, or mstconfig of mstflint Actual: neither installed. Run role nic_stack: it "
        "installs mft."
    )


def test_a_reset_that_brings_nothing_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.machine.inject("nic-link-type", nic=2)
    monkeypatch.setattr(fwreset, "_reset", lambda _nic: None)
    assert refusal(node, WANTED) == (
        f"Expected: {PCI} LINK_TYPE_P1=2 in force after the reset Actual: {PCI} LINK_TYPE_P1 IB(1). Turn the node's "
        "power off and on: some cards take values over only then; then run again."
    )


def test_a_card_that_does_not_come_back_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.machine.inject("nic-link-type", nic=2)

    def gone(_nic: dict[str, Any]) -> None:
        paths.at(f"/sys/bus/pci/devices/{PCI}/infiniband/mlx5_3").rmdir()

    monkeypatch.setattr(fwreset, "_reset", gone)
    assert refusal(node, WANTED) == (
        f"Expected: {PCI} back within 0 s of its reset Actual: no RDMA device. Check `dmesg | grep mlx5_core` on the "
        "node, then reboot it."
    )
