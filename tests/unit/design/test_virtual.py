"""Virtual nodes in the site file: what is refused, in words, and what of the facts is computed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rackready.design.site import parse_site
from rackready.design.virtual_domain import bars_mib, domain_facts, window_mib
from rackready.model.problems import RackreadyError
from rackready.model.virtual import Hypervisor, PassedDevice, cpu_numbers
from rackready.render.domain import domain_xml
from tests.unit.design.virtual_sites import EIGHT, EMULATED, FULL, HOST, ONE, ROOT, VFS, devices, document, site


def problems(machine: dict[str, Any], host: dict[str, Any] | None = None, **node: Any) -> list[str]:
    with pytest.raises(RackreadyError) as caught:
        site(machine, host, **node)
    return str(caught.value).split("nothing was changed.\n", 1)[-1].replace("  ", "").splitlines()


@pytest.mark.parametrize("machine", [FULL, ONE, VFS])
def test_the_examples_are_accepted(machine: dict[str, Any]) -> None:
    assert site(machine).node("guest01").virtual is not None


AT = "racks[0].nodes[1].virtual"
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "too many processors": (
        {**ONE, "vcpus": 200},
        {},
        (
            f"{AT}: CPUs of NUMA node 1 of train-1 for guest01 - Expected: 200 free Actual: 108. "
            "Give its virtual nodes less, or place them elsewhere."
        ),
    ),
    "too much memory": (
        {**ONE, "memory_gib": 1000},
        {},
        (
            f"{AT}: memory of NUMA node 1 of train-1 for guest01 - Expected: 1000 GiB free Actual: 992 GiB. "
            "Give its virtual nodes less, or place them elsewhere."
        ),
    ),
    "devices under emulation": (
        ONE,
        {"accelerator": "qemu"},
        (
            f"{AT}: devices of guest01 - Expected: accelerator: kvm Actual: qemu (emulated). "
            "Set accelerator: kvm on the hypervisor, or remove the devices."
        ),
    ),
    "a device of no known NUMA node": (
        {**ONE, "nics": devices(["aa"])},
        {},
        (
            f"{AT}.nics[0].numa: NUMA node of 0000:aa:00.0 of guest01 - Expected: one of [0, 1] Actual: not known. "
            "Write numa beside pci of this device: `cat /sys/bus/pci/devices/0000:aa:00.0/numa_node` on train-1 shows "
            "it."
        ),
    ),
    "a NUMA node that the hypervisor lacks": (
        {**EMULATED, "numa": [3]},
        {},
        (
            f"{AT}.numa: NUMA nodes of train-1 - Expected: [0, 1] Actual: 3. "
            "Correct it, or add the NUMA node to the hypervisor."
        ),
    ),
    "an NVSwitch board without a mode": (
        {**ONE, "fabric_manager": "none"},
        {},
        (
            f"{AT}.fabric_manager: NVSwitches of dgx_h100 - Expected: full or shared Actual: none. "
            "Set full for a node with every GPU, else shared."
        ),
    ),
    "full with some GPUs": (
        {**FULL, "gpus": devices(EIGHT[:4])},
        {},
        f"{AT}.fabric_manager: GPUs of guest01 - Expected: 8 for full Actual: 4. Give it every GPU, or set shared.",
    ),
    "full without its NVSwitches": (
        {**FULL, "nvswitches": []},
        {},
        (
            f"{AT}.fabric_manager: NVSwitches of guest01 - Expected: 4 for full Actual: 0. "
            "List each in virtual.nvswitches: the guest's fabric manager needs all of them."
        ),
    ),
    "shared with NVSwitches": (
        {**ONE, "nvswitches": devices(["05"], numa=0)},
        {},
        (
            f"{AT}.fabric_manager: NVSwitches of guest01 - Expected: 0 for shared Actual: 1. "
            "Remove them: the hypervisor's fabric manager needs them."
        ),
    ),
    "a partition of three": (
        {**ONE, "gpus": devices(EIGHT[:3])},
        {},
        (
            f"{AT}.fabric_manager: GPUs of guest01 - Expected: 1 or 2 or 4 or 8 or 16 for shared Actual: 3. "
            "Give it as many GPUs as a partition has."
        ),
    ),
    "a device twice": (
        {**ONE, "nics": devices(["9a", "9a"])},
        {},
        f"{AT}: device 0000:9a:00.0 of train-1 is already given to guest01. Give each device to one node, once.",
    ),
    "a router of another network": (
        {**EMULATED, "gateway": "10.51.0.25", "prefix": 29},
        {},
        (
            f"{AT}.gateway: router of guest01 - Expected: another address than 10.51.0.19 in 10.51.0.16/29 "
            "Actual: 10.51.0.25. Correct gateway, prefix or the node's address."
        ),
    ),
    "a router that is the node": (
        {**EMULATED, "gateway": "10.51.0.19"},
        {},
        (
            f"{AT}.gateway: router of guest01 - Expected: another address than 10.51.0.19 in 10.51.0.0/24 "
            "Actual: 10.51.0.19. Correct gateway, prefix or the node's address."
        ),
    ),
    "a router that is no address": (
        {**EMULATED, "gateway": "gw.example"},
        {},
        f"{AT}.gateway: Expected: an IPv4 address such as 192.0.2.1 Actual: 'gw.example'. Correct it.",
    ),
    "a hypervisor that is virtual": (
        EMULATED,
        {"name": "vm-a03"},
        "hypervisors[0].name: hypervisor vm-a03 - Expected: a metal node Actual: a virtual node. Correct the name.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_contradiction_is_named(case: str) -> None:
    machine, host, text = REFUSED[case]
    assert text in problems(machine, host)


def test_a_metal_node_gets_no_devices() -> None:
    found = problems(EMULATED, kind="metal", host=None, unit=40)
    assert f"{AT}: metal node guest01 has it. Remove it, or set kind: virtual." in found


def test_a_function_on_infiniband_is_passed_as_any_device() -> None:
    """Libvirt sets the MAC address of an <interface>, which ipoib refuses; another card's function stays Ethernet."""
    compute = {"pci": "0000:9a:00.2", "vf_of": "0000:9a:00.0"}
    other = {"pci": "0000:aa:00.2", "vf_of": "0000:aa:00.0", "numa": 1, "mac": "02:00:00:00:00:02"}
    made = site({**VFS, "nics": [compute, other]})
    made = made.model_copy(update={"fabric": made.fabric.model_copy(update={"kind": "infiniband"})})
    facts = domain_facts(made, "guest01")
    assert [device.kind for device in facts.devices] == ["gpu", "nic", "vf"]
    assert domain_xml(facts).count("<interface type='hostdev'") == 1


def test_a_function_on_infiniband_has_neither_mac_nor_vlan() -> None:
    made = document(VFS)
    made["fabric"] = {**made["fabric"], "kind": "infiniband"}
    with pytest.raises(RackreadyError) as caught:
        parse_site(made, source="site.yml", base=ROOT)
    for at, pci, actual in ((0, "9a:00.2", "mac and vlan"), (1, "c0:00.3", "mac")):
        assert (
            f"{AT}.nics[{at}]: InfiniBand function 0000:{pci} of guest01 - Expected: neither mac nor vlan "
            f"Actual: {actual}. Remove it. docs/howto/virtual.md says how to give the function its GUIDs."
        ) in str(caught.value)


def test_two_nodes_share_no_device_and_no_processor() -> None:
    made = document(ONE)
    made["racks"][0]["nodes"].append({**made["racks"][0]["nodes"][-1], "name": "guest02", "slot": 10})
    with pytest.raises(RackreadyError, match=r"device 0000:9d:00.0 of train-1 is already given to guest01"):
        parse_site(made, source="site.yml", base=ROOT)
    second = made["racks"][0]["nodes"][-1]
    second["virtual"] = {**ONE, "gpus": devices(["c3"]), "nics": devices(["c0"]), "mac": None}
    both = parse_site(made, source="site.yml", base=ROOT)
    one, two = (domain_facts(both, name).cells[0].cpus for name in ("guest01", "guest02"))
    assert not set(one) & set(two)
    assert not {*one, *two} & {56, 57, 58, 59}


def test_the_window_is_a_power_of_two_that_holds_the_devices() -> None:
    """Each of the eight takes 2 x 128 GiB at its alignment: with the NICs, above 2 TiB."""
    full, one = site(FULL), site(ONE)
    assert bars_mib(full, full.node("guest01")) == [128 * 1024 + 64] * 8 + [64] * 12
    assert window_mib(full, full.node("guest01")) == 4 * 1024 * 1024
    assert window_mib(one, one.node("guest01")) == 512 * 1024
    small = site({**EMULATED, "nics": devices(["9a"])})
    assert window_mib(small, small.node("guest01")) is None


@pytest.mark.parametrize(("gpu_gib", "window_tib"), [(128, 4), (256, 8), (512, 16)])
def test_a_window_holds_eight_gpus_at_their_alignment(gpu_gib: int, window_tib: int) -> None:
    """H100; H200 and B200; B300, of which one was unusable in 8 TiB (tianocore/edk2, pull request 12997)."""
    found = site({**FULL, "gpus": devices(EIGHT, bars_mib=gpu_gib * 1024 + 64)})
    facts = domain_facts(found, "guest01")
    assert facts.window_mib == window_tib << 20
    base = -(-facts.memory_kib // (facts.window_mib << 10)) * facts.window_mib
    assert base + facts.window_mib <= 1 << (46 - 20), "OVMF uses 46 bits of addresses at most"


def test_cells_follow_the_devices() -> None:
    cells = domain_facts(site(FULL), "guest01").cells
    assert [(cell.host, cell.vcpus, len(cell.cpus)) for cell in cells] == [(0, "0-103", 104), (1, "104-207", 104)]
    assert [cell.host for cell in domain_facts(site(ONE), "guest01").cells] == [1]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"reserved_cpus": "300"}, r"reserved_cpus \[300\] - Expected: CPUs of its numa nodes Actual: in none"),
        ({"reserved_cpus": "3-1"}, "'3-1' is not a CPU or a range such as 0-3"),
        ({"numa": [*HOST["numa"], HOST["numa"][0]]}, "Expected: each NUMA node once Actual: listed twice"),
    ],
)
def test_a_malformed_hypervisor_is_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Hypervisor.model_validate({**HOST, **more})


def test_a_mac_address_needs_a_virtual_function() -> None:
    with pytest.raises(ValidationError, match="Expected: mac and vlan of a virtual function Actual: no vf_of"):
        PassedDevice.model_validate({"pci": "0000:9a:00.0", "vlan": 7})


def test_cpu_lists_are_the_kernels() -> None:
    assert cpu_numbers("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
