"""The PCIe path of every GPU: each link against its two ends, the ends against the profiles; word for word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from rackready.ondevice import pcie_path
from tests.gates.captured import evaluate
from tests.gates.gpu.test_links import S, judge
from tests.gates.support import Told, tells


def path(gpu: str, bus: int, **changed: float | None) -> dict[str, Any]:
    names = [gpu, f"0000:{bus - 1:02x}:00.0", f"0000:{bus - 2:02x}:00.0", f"0000:{bus - 3:02x}:01.0"]
    values = {
        "current_link_speed": 32.0,
        "max_link_speed": 32.0,
        "current_link_width": 16.0,
        "max_link_width": 16.0,
        "correctable": 0,
    }
    chain = [{"pci": name, **values} for name in names]
    for key, value in changed.items():
        at, leaf = key.split("_", 1)
        chain[int(at[1:])][leaf] = value
    return {"pci": gpu, "revision": "0xa1", "links": chain}


def paths_of(platform: str = "dgx_h100", **changed: float | None) -> dict[str, Any]:
    addresses = facts(platform, 1).nodes["node01"].platform.gpu_pci
    return {
        "format": pcie_path.FORMAT,
        "complete": True,
        "gpus": [path(pci, int(pci[5:7], 16), **(changed if at == 1 else {})) for at, pci in enumerate(addresses)],
    }


PCIE_STEP = (
    "Power the node off and on; if that does not help, reseat the board or riser of that link, then check the link "
    "speed in the BIOS: docs/runbooks/gpu.md."
)


@pytest.mark.parametrize(
    ("changed", "says", "outcome"),
    [
        ({}, None, Outcome.PASS),
        (
            {"n0_current_link_width": 8.0, "n1_current_link_width": 8.0},
            ("gpu-pcie-width", "x16", "x8", "name=0000:43:00.0 to 0000:42:00.0"),
            Outcome.FAIL,
        ),
        (
            {"n2_current_link_speed": 16.0, "n3_current_link_speed": 16.0},
            (
                "gpu-pcie-generation",
                "generation 5 (32 GT/s)",
                "generation 4 (16 GT/s)",
                "name=0000:41:00.0 to 0000:40:01.0",
            ),
            Outcome.FAIL,
        ),
        (
            {"n3_max_link_speed": 16.0, "n2_current_link_speed": 16.0},
            ("gpu-pcie-generation-able", "5 (platform profile dgx_h100)", "4", "part=0000:40:01.0 above the GPU"),
            Outcome.FAIL,
        ),
        (
            {"n1_max_link_speed": 16.0, "n0_current_link_speed": 16.0, "n1_current_link_speed": 16.0},
            ("gpu-pcie-generation-able", "5 (platform profile dgx_h100)", "4", "part=0000:42:00.0 above the GPU"),
            Outcome.FAIL,
        ),
        (
            {"n1_max_link_width": 8.0, "n0_current_link_width": 8.0, "n1_current_link_width": 8.0},
            ("gpu-pcie-lanes-able", "16 (platform profile dgx_h100)", "8", "part=0000:42:00.0 above the GPU"),
            Outcome.FAIL,
        ),
        (
            {"n0_max_link_speed": 16.0},
            ("gpu-pcie-generation-able", "5 (GPU profile)", "4", "part=the GPU"),
            Outcome.FAIL,
        ),
        (
            {"n0_max_link_width": 8.0},
            ("gpu-pcie-lanes-able", "16 (GPU profile)", "8", "part=the GPU"),
            Outcome.FAIL,
        ),
        (
            {"n2_current_link_speed": None},
            (
                "gpu-pcie-link-not-reported",
                "speed and width of both ends",
                "nothing",
                "name=0000:41:00.0 to 0000:40:01.0",
            ),
            Outcome.ERROR,
        ),
        (
            {"n2_current_link_speed": 16.0, "n2_max_link_speed": -1.0, "n3_current_link_speed": 16.0},
            (
                "gpu-pcie-link-not-reported",
                "speed and width of both ends",
                "16, -1, 16, 16, 32, 16",
                "name=0000:41:00.0 to 0000:40:01.0",
            ),
            Outcome.ERROR,
        ),
    ],
)
def test_each_link_of_the_pcie_path(changed: dict[str, float | None], says: Told | None, outcome: Outcome) -> None:
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(paths_of(**changed))})
    assert tells(verdict) == ([(says[0], "node01 gpu1", *says[1:])] if says else [])
    assert verdict.outcome is outcome
    assert len(verdict.measured) == (7 if says else 8)


def test_a_server_whose_path_nobody_publishes_is_held_to_the_gpu_at_its_own_link_alone() -> None:
    slow = {"n3_max_link_speed": 16.0, "n2_current_link_speed": 16.0, "n3_current_link_speed": 16.0}
    found = {
        "format": pcie_path.FORMAT,
        "complete": True,
        "gpus": [path(f"0000:{bus:02x}:00.0", bus, **slow) for bus in range(16, 96, 10)],
    }
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)}, "sys_521ge_h100_pcie")
    assert tells(verdict) == []
    assert (
        verdict.note == "platform profile sys_521ge_h100_pcie has no capabilities of the PCIe path above it: "
        "the two ends were compared with each other"
    )
    near = {"n1_max_link_speed": 16.0, "n0_current_link_speed": 16.0, "n1_current_link_speed": 16.0}
    found["gpus"] = [path(f"0000:{bus:02x}:00.0", bus, **(near if bus == 26 else {})) for bus in range(16, 96, 10)]
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)}, "sys_521ge_h100_pcie")
    says = ("gpu-pcie-generation-able", "5 (GPU profile)", "4", "part=0000:19:00.0 above the GPU")
    assert tells(verdict) == [(says[0], "node01 gpu1", *says[1:])]


def test_a_gpu_whose_own_link_nobody_publishes_is_held_end_against_end() -> None:
    found = {
        "format": pcie_path.FORMAT,
        "complete": True,
        "gpus": [path(f"0000:{bus:02x}:00.0", bus, n1_max_link_speed=16.0) for bus in range(16, 96, 10)],
    }
    for gpu in found["gpus"]:
        gpu["links"][0]["current_link_speed"] = 16.0
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)}, "dgx_b200")
    assert tells(verdict) == []
    own = (
        "GPU profile b200_sxm has no capabilities of a GPU's own PCIe link: the two ends were compared with each other"
    )
    assert (
        verdict.note == f"{own}; platform profile dgx_b200 has no capabilities of the PCIe path above it: "
        "the two ends were compared with each other"
    )


@pytest.mark.parametrize(
    ("vendor", "outcome"), [("0x1b36", Outcome.PASS), ("0x15ad", Outcome.PASS), ("0x8086", Outcome.FAIL)]
)
def test_a_virtual_port_says_nothing_of_the_hardware(vendor: str, outcome: Outcome) -> None:
    """QEMU's root port says generation 4 of itself, whatever the GPU runs at."""
    found = paths_of()
    for gpu in found["gpus"]:
        gpu["links"] = gpu["links"][:2]
        gpu["links"][1].update(vendor=vendor, max_link_speed=16.0)
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)})
    assert verdict.outcome is outcome
    words = "node01 gpu1: 0000:42:00.0 is a virtual port: its capabilities describe no hardware and are not judged"
    assert (words in (verdict.note or "")) is (outcome is Outcome.PASS)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        (
            {"current_link_width": 4.0},
            ("gpu-pcie-width", "node01 gpu1", "x16", "x4", "name=0000:43:00.0 to the unseen end"),
        ),
        (
            {"current_link_speed": 2.5},
            (
                "gpu-pcie-generation",
                "node01 gpu1",
                "generation 5 (32 GT/s)",
                "generation 1 (2.5 GT/s)",
                "name=0000:43:00.0 to the unseen end",
            ),
        ),
    ],
    ids=["full", "narrow", "slow"],
)
def test_a_gpu_whose_other_end_is_not_seen_is_held_to_what_it_can_do(
    changed: dict[str, float], says: str | None
) -> None:
    """In a virtual machine the GPU may be all that there is of its path: its own end says how it was trained."""
    found = paths_of()
    for gpu in found["gpus"]:
        gpu["links"] = gpu["links"][:1]
    found["gpus"][1]["links"][0].update(changed)
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)})
    assert tells(verdict) == ([says] if says else [])
    assert verdict.outcome is (Outcome.FAIL if says else Outcome.PASS)
    assert "only the GPU's end is judged" in (verdict.note or "")


def test_a_card_in_a_slot_may_be_slow_while_idle_and_it_is_said() -> None:
    found = {
        "format": pcie_path.FORMAT,
        "complete": True,
        "gpus": [path(f"0000:{bus:02x}:00.0", bus) for bus in range(16, 96, 10)],
    }
    found["gpus"][0]["links"][0].update(current_link_speed=2.5, max_link_speed=16.0)  # type: ignore[index]
    for gpu in found["gpus"]:  # type: ignore[attr-defined]
        gpu["links"][0]["max_link_speed"] = 16.0
        gpu["links"][0]["current_link_speed"] = min(gpu["links"][0]["current_link_speed"], 16.0)
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)}, "sys_521ge_l40s")
    assert verdict.outcome is Outcome.PASS
    assert "runs at generation 1 (2.5 GT/s) of generation 4 (16 GT/s) while idle, as such a card may" in (
        verdict.note or ""
    )


def test_the_ports_of_a_virtual_node_say_nothing_of_the_hardware() -> None:
    """The site says that it is one; what its hypervisor's ports are called does not matter."""
    known = facts("dgx_h100", 1)
    one = known.nodes["node01"]
    known = replace(known, nodes={"node01": replace(one, node=one.node.model_copy(update={"kind": "virtual"}))})
    found = gate(f"{S}pcie-path")
    texts = {"path": json.dumps(paths_of(n1_max_link_speed=16.0, n3_max_link_speed=16.0))}
    verdict = evaluate(found, known, found.plan(known, ["node01"])[0], texts, 0)
    assert verdict.outcome is Outcome.PASS
    assert "0000:42:00.0 is a virtual port" in (verdict.note or "")


def test_a_gpu_off_the_bus_reads_as_all_ones() -> None:
    found = paths_of()
    found["gpus"][3]["revision"] = "0xff"
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)})
    assert [finding.what for finding in verdict.findings] == ["GPU fell off the PCIe bus"]


def test_the_script_reads_sysfs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "pci0000:15" / "0000:15:01.0"
    card = root / "0000:16:00.0"
    card.mkdir(parents=True)
    flat = tmp_path / "devices"
    flat.mkdir()
    for folder, kind in ((root, "0x060400"), (card, "0x030200")):
        for name, value in (
            ("vendor", "0x10de"),
            ("class", kind),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
        ):
            (folder / name).write_text(value + "\n")
        (folder / "current_link_width").write_text("255\n")
        (flat / folder.name).symlink_to(folder)
    (card / "aer_dev_correctable").write_text("RxErr 3\nTOTAL_ERR_COR 3\n")
    assert pcie_path.main(str(flat)) == 0
    found = json.loads(capsys.readouterr().out)
    assert [link["pci"] for link in found["gpus"][0]["links"]] == ["0000:16:00.0", "0000:15:01.0"]
    assert found["gpus"][0]["links"][0] == {
        "pci": "0000:16:00.0",
        "vendor": "0x10de",
        "current_link_speed": 16.0,
        "max_link_speed": 32.0,
        "current_link_width": None,
        "max_link_width": None,
        "correctable": 3,
    }
    assert pcie_path.main(str(tmp_path / "absent")) == 1


@pytest.mark.parametrize("revision", ["0x\u2212f", "0xf f", "0xff\u200b", ""], ids=ascii)
def test_a_revision_that_is_none_may_be_that_of_a_gpu_off_the_bus(revision: str) -> None:
    found = paths_of()
    found["gpus"][3]["revision"] = revision
    verdict = judge(f"{S}pcie-path", {"path": json.dumps(found)})
    wanted = ("gpu-pcie-revision-unreadable", "node01 gpu3", "0x and two hexadecimal digits", f"{revision!a}")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)
    assert "node01/gpu3" not in verdict.measured
