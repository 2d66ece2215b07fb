"""Profiles of trays of superchips (GB200), which each maker sells under a product name of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from rackready.design.learning.profile import Given, Learned, given, learn
from rackready.model.problems import RackreadyError
from rackready.model.profile import PlatformProfile
from rackready.profiles import loader
from tests.unit.design.learning.machines import bluefield, grace_cards, nic, parts, tray, two_gpus

FULL = Given("node01", max_power_w=5400)
PAIRS = (
    "no card shares a PCIe switch with a GPU: cards and GPUs of one NUMA node are paired in the order of their PCI "
    "addresses; are these the compute NICs?"
)


def learned(document: dict[str, Any], base: Given = FULL) -> Learned:
    return learn(parts(document), given(parts(document), base))


def profile(found: Learned) -> PlatformProfile:
    return PlatformProfile.model_validate(yaml.safe_load(found.text))


def test_another_makers_tray_is_no_hgx_server() -> None:
    """It reports a fabric, but its switches and their fabric manager are in other trays."""
    found = learned(tray())
    made = profile(found)
    assert (found.missing, made.id, made.product) == ([], "p4242_gb200_nvl72", "P4242")
    assert (made.nvswitch, made.fabric_manager, made.nvlink_domain) == (True, False, 72)
    assert (made.runs_fabric_manager, made.runs_imex) == (False, True)
    assert "fabric_manager, nvlink_domain: of gb200_nvl72; is this a tray of such a rack?" in found.questions


def test_a_superchip_of_no_packaged_tray_is_asked_about() -> None:
    base = replace(given(parts(tray()), FULL), trays=())
    assert learn(parts(tray()), base).missing == [
        (
            "fabric_manager - Expected: known Actual: no packaged profile of its GPU tells whether its switches are "
            "outside. Add `fabric_manager: true` or `false`, and `nvlink_domain` if it spans servers."
        )
    ]


def test_figures_of_another_makers_tray_are_taken_on_request_and_asked_about() -> None:
    found = learned(tray(), Given("node01", like=loader.platform("gb200_nvl72")))
    made = profile(found)
    assert (made.id, made.manufacturer, made.product) == ("p4242_gb200_nvl72", "Acme", "P4242")
    assert (made.max_power.value, made.fed, made.fabric_manager, made.nvlink_domain) == (5400, "bus_bar", False, 72)
    asked = (
        "max_power, fabric_manager, nvlink_domain, su_nodes, fed, cooling, other_nics: of gb200_nvl72, the product "
        "GB200 NVL; are they those of this product?"
    )
    assert asked in found.questions


@pytest.mark.parametrize(
    ("document", "like", "words"),
    [
        (
            two_gpus(),
            "xd670_h100",
            "a profile of Box 2 Actual: of HPE Cray XD670. Leave it out, or name a profile of this product.",
        ),
        (
            tray(),
            "gb300_nvl72",
            (
                "a profile with GPU gb200_nvl72 Actual: with gb300_nvl72. "
                "Leave it out, or name a profile of this product with this GPU."
            ),
        ),
    ],
)
def test_another_product_is_refused_unless_it_is_a_tray_of_the_same_superchip(
    document: dict[str, Any], like: str, words: str
) -> None:
    with pytest.raises(RackreadyError) as refused:
        learned(document, Given("node01", like=loader.platform(like)))
    assert str(refused.value) == f"profile learn --like {like} - Expected: {words}"


@pytest.mark.parametrize("product", ["P4242", "GB200 NVL"])
def test_cards_and_gpus_with_root_ports_of_their_own_are_paired_by_numa_node(product: str) -> None:
    found = learned(tray(product=product))
    made = profile(found)
    assert [(item.rail, item.rdma_device, item.pci[:4], item.gpu, item.numa) for item in made.nics] == [
        (1, "mlx5_1", "0000", 0, 0),
        (2, "mlx5_0", "0002", 1, 0),
        (3, "mlx5_3", "0010", 2, 1),
        (4, "mlx5_2", "0012", 3, 1),
    ]
    assert (made.nic_path, made.unpublished()) == ("root_ports", ())
    assert PAIRS in found.questions
    assert "0002:03:00.0: GPUs 0 are as near as GPU 1; is this pair as cabled?" in found.questions
    roles = [line[:12] for line in found.questions if "other_nics." in line]
    assert roles == ["0006:01:00.0", "0016:01:00.0"], "BlueFields are as fast, and no compute NICs"
    assert learned(tray(product=product)).text == found.text


def test_pairs_that_the_operator_changed_are_kept() -> None:
    before = profile(learned(tray()))
    swapped = [nic.model_copy(update={"gpu": nic.gpu ^ 1}) for nic in before.nics]
    base = replace(given(parts(tray()), FULL), before=before.model_copy(update={"nics": swapped}))
    again = profile(learn(parts(tray()), base))
    assert [(item.rail, item.pci, item.gpu) for item in again.nics] == [
        (item.rail, item.pci, item.gpu) for item in swapped
    ]


@pytest.mark.parametrize(
    ("cards", "like"),
    [
        (grace_cards()[:3], "0000:03:00.0, 0002:03:00.0, 0012:03:00.0"),
        ([bluefield("0006:01:00.0")], "no cards"),
        (
            [*grace_cards(), nic("0004:03:00.0", "0004:00:00.0", name="ibP4s1")],
            "0000:03:00.0, 0002:03:00.0, 0004:03:00.0, 0010:03:00.0, 0012:03:00.0",
        ),
    ],
    ids=["one is absent", "all are absent", "one too many"],
)
def test_compute_cards_that_are_not_as_published_are_missing(cards: list[dict[str, Any]], like: str) -> None:
    found = learned(tray(*cards))
    assert found.missing == [
        (
            "nics - Expected: known Actual: gb200_nvl72 has 4 compute NICs, none of these shares a PCIe switch with a "
            f"GPU, and like them are {like}. Load mlx5_core and mlx5_ib, check that every card is seated, and read the "
            "machine again."
        )
    ]
    assert "nics" not in yaml.safe_load(found.text)
    suggested = [line for line in found.questions if "other_nics." in line]
    assert not [line for line in suggested if line[:12] in like]


def test_a_server_with_published_nics_and_none_behind_a_switch_is_not_complete() -> None:
    """An HGX server whose cards have no RDMA driver: an empty list would say that it has no compute fabric."""
    document = two_gpus(machine={"sys_vendor": "Supermicro", "product_name": "SYS-821GE-TNHR"})
    document["nics"] = [{**card, "rdma": []} for card in document["nics"]]
    found = learned(document, Given("node01"))
    assert [line.partition(" - ")[0] for line in found.missing] == ["nics"]
    assert not [line for line in found.questions if "other_nics." in line]


def test_cards_of_a_tray_without_an_rdma_driver_are_named() -> None:
    document = tray(*({**card, "rdma": []} for card in grace_cards()))
    assert learned(document).missing[0] == (
        "nics: 0000:03:00.0 - Expected: known Actual: interfaces ibP0s1, RDMA devices none: not one of each. "
        "Load mlx5_core and mlx5_ib, remove virtual ones, read again."
    )
