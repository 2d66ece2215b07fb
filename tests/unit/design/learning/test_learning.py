"""Platform profiles from machines: what is known, what is asked, and what is never invented."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rackready.design.learning.parts import Parts
from rackready.design.learning.profile import Given, Learned, fits, given, learn, same_model
from rackready.design.learning.rails import rails
from rackready.model.problems import RackreadyError
from rackready.model.profile import PlatformProfile
from rackready.profiles import loader
from tests.gates.support import text
from tests.unit.design.learning.machines import device, nic, parts, two_gpus

FULL = Given("node01", max_power_w=3000)


def profile(found: Learned) -> PlatformProfile:
    return PlatformProfile.model_validate(yaml.safe_load(found.text))


def pairs(document: dict[str, Any]) -> list[tuple[str, int]]:
    return [(rail.nic.pci[5:7], rail.gpu) for rail in rails(parts(document))[0]]


def test_a_nic_belongs_to_the_gpu_behind_its_switch_whatever_its_name() -> None:
    found = profile(learn(parts(two_gpus()), FULL))
    assert [(item.rail, item.netdev, item.rdma_device, item.pci, item.gpu, item.numa) for item in found.nics] == [
        (1, "rail9", "rocep26s0", "0000:1a:00.0", 0, 0),
        (2, "rail1", "rocep66s0", "0000:42:00.0", 1, 1),
    ]
    assert (found.id, found.manufacturer, found.product, found.rack_units) == ("box_2_h100_sxm", "Acme", "Box 2", 4)
    assert (found.gpu, found.gpus, found.gpu_pci) == ("h100_sxm", 2, ["0000:1b:00.0", "0000:43:00.0"])
    assert (found.nvswitch, found.nvswitches.value if found.nvswitches else None) == (True, 1)
    assert found.host is not None
    assert (found.host.dimms, found.host.memory_gib, found.host.drive_gb) == (32, 2048, {1920: 1, 3840: 1})
    assert found.unpublished() == ()


def test_two_gpus_and_two_cards_of_one_switch_are_paired_by_the_nearest_port() -> None:
    """As an HPE Cray XD670: PIX to the own card, PXB to the other one of the switch."""
    top = ("0000:17:01.0", "0000:18:00.0")
    near, far = (*top, "0000:19:00.0", "0000:1a:00.0"), (*top, "0000:19:01.0", "0000:30:00.0")
    gpus = [device("0000:1c:00.0", *near, "0000:1b:01.0"), device("0000:32:00.0", *far, "0000:31:01.0")]
    cards = [nic("0000:1d:00.0", *far, "0000:31:02.0"), nic("0000:33:00.0", *near, "0000:1b:02.0")]
    assert pairs(two_gpus(gpus=gpus, nics=cards)) == [("33", 0), ("1d", 1)]


def test_equally_near_pairs_are_a_question() -> None:
    top = ("0000:17:01.0", "0000:18:00.0")
    gpus = [device("0000:1b:00.0", *top, "0000:19:01.0"), device("0000:1c:00.0", *top, "0000:19:02.0")]
    cards = [nic("0000:1d:00.0", *top, "0000:19:03.0"), nic("0000:1e:00.0", *top, "0000:19:04.0")]
    document = two_gpus(gpus=gpus, nics=cards)
    assert pairs(document) == [("1d", 0), ("1e", 1)]
    asked = learn(parts(document), FULL).questions
    assert "0000:1d:00.0: GPUs 1 are as near as GPU 0; is this pair as cabled?" in asked
    assert "0000:1e:00.0: GPUs 0 are as near as GPU 1; is this pair as cabled?" in asked


def test_the_card_of_a_gpu_board_is_no_rail() -> None:
    document = two_gpus()
    board = nic("0000:44:00.0", "0000:3f:01.0", "0000:40:00.0", "0000:41:04.0", managed=True)
    document["nics"].append(board)
    document["nvswitches"] = []
    found = learn(parts(document), FULL)
    assert len(profile(found).nics) == 2
    assert profile(found).nvswitch is True
    assert "part of the GPU board (SW_MNG), for NVLink; it is no rail." in found.text


def test_other_cards_are_asked_about_and_not_listed() -> None:
    document = two_gpus()
    document["nics"].append(nic("0000:05:00.0", "0000:00:1c.0", name="eno1", rdma=[], rate=10))
    found = learn(parts(document), FULL)
    assert len(profile(found).nics) == 2
    described = "0000:05:00.0, eno1 b8:3f:d2:00:00:05, board MT_0000000838, firmware 28.43.2566"
    assert f"# question: {described}: role (inband, storage)? Add it under other_nics.\n" in found.text


def test_published_figures_of_the_same_model_are_kept() -> None:
    document = two_gpus(machine={"sys_vendor": "Supermicro Inc.", "product_name": "SYS-821GE-TNHR"})
    like = same_model(parts(document), loader.known("platform"))
    assert like is not None
    assert like.id == "sys_821ge_h100"
    found = profile(learn(parts(document), Given("node01", like=like)))
    assert (found.id, found.manufacturer, found.rack_units) == ("sys_821ge_h100", "Supermicro", 8)
    assert (found.max_power, found.psus, found.cooling) == (like.max_power, like.psus, like.cooling)
    assert found.source == f"`rackready profile learn` on node01; {like.source}"
    again = learn(parts(document), Given("node01", like=like, before=found))
    assert again.text == learn(parts(document), Given("node01", like=like)).text, "reading again changes nothing"


def test_missing_gpus_of_a_known_model_are_asked_about() -> None:
    document = two_gpus(machine={"sys_vendor": "Supermicro", "product_name": "SYS-821GE-TNHR"})
    found = learn(parts(document), Given("node01", like=loader.platform("sys_821ge_h100")))
    assert "sys_821ge_h100 has 8 GPUs and this machine shows 2: is one missing?" in found.questions
    assert "published are 4 NVSwitches and this machine shows 1: is one missing?" in found.questions


@pytest.mark.parametrize("product", ["PowerEdge XE9680", "POWEREDGE-XE9680"])
def test_a_product_is_the_same_whatever_its_spelling(product: str) -> None:
    document = two_gpus(machine={"sys_vendor": "Dell Inc.", "product_name": product})
    assert fits(loader.platform("xe9680_h200"), parts(document))
    assert not fits(loader.platform("dgx_h100"), parts(document))


def test_what_the_model_demands_is_never_invented() -> None:
    document = two_gpus(nvswitches=[], chassis={"units": None}, machine={"sys_vendor": None, "product_name": None})
    found = learn(parts(document), Given("node01"))
    assert found.missing == [
        (
            "manufacturer and product - Expected: known Actual: SMBIOS gives none. "
            "Use a packaged profile of the model (--like), or correct the server's SMBIOS."
        ),
        (
            "nvswitch - Expected: known Actual: no NVSwitch on the PCI bus, and no driver that reports a fabric. "
            "Install the driver and read the machine again, or add `nvswitch: true` or `false`."
        ),
        "rack_units - Expected: known Actual: SMBIOS gives no height of the chassis. Give it: --rack-units N.",
        (
            "max_power - Expected: known Actual: a machine does not report its highest draw. "
            "Give the vendor's figure: --max-power WATTS."
        ),
    ]
    for key in ("manufacturer", "nvswitch", "rack_units", "max_power"):
        assert key not in yaml.safe_load(found.text)


def test_a_gpu_without_a_profile_is_named() -> None:
    document = two_gpus(gpus=[device("0000:1b:00.0", device="0xffff")])
    assert learn(parts(document), FULL).missing == [
        (
            "gpu - Expected: known Actual: no GPU profile of 10de:ffff (no name: nvidia-smi is not installed). "
            "Add profiles/gpu/<id>.yml for it beside site.yml, and read the machine again."
        )
    ]


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        (
            {"rate": None},
            (
                "nics: 0000:1a:00.0 rate - Expected: known Actual: the link is down and ethtool lists no supported "
                "modes. Install ethtool or connect the cable, and read the machine again."
            ),
        ),
        (
            {"netdevs": []},
            (
                "nics: 0000:1a:00.0 - Expected: known Actual: interfaces none, RDMA devices rocep26s0: not one of "
                "each. Load mlx5_core and mlx5_ib, remove virtual ones, read again."
            ),
        ),
    ],
)
def test_a_card_without_rate_or_name_is_no_guess(change: dict[str, Any], lacks: str) -> None:
    document = two_gpus()
    document["nics"][0].update(change)
    assert learn(parts(document), FULL).missing == [lacks]


def test_unread_kinds_are_questions() -> None:
    document = two_gpus(memory=None, unread={"memory": "dmidecode is not installed"})
    found = learn(parts(document), FULL)
    assert profile(found).host is None
    question = "host: memory could not be read (dmidecode is not installed). Host gates compare nothing without."
    assert question in found.questions


def test_a_name_of_firmware_cannot_leave_its_comment() -> None:
    document = two_gpus(slots=[{"name": "SLOT3\ngpu: evil", "usage": "In Use", "pci": ""}])
    assert profile(learn(parts(document), FULL)).gpu == "h100_sxm"


def test_a_profile_with_another_gpu_is_refused() -> None:
    document = two_gpus(machine={"sys_vendor": None, "product_name": None})
    base = Given("this machine", like=loader.platform("xd670_h200"))
    with pytest.raises(RackreadyError) as refused:
        given(parts(document), base)
    assert str(refused.value) == (
        "profile learn --like xd670_h200 - Expected: a profile with GPU h100_sxm Actual: with h200_sxm. "
        "Leave it out, or name a profile of this product with this GPU."
    )


def test_a_driver_that_reports_no_fabric_is_not_to_be_installed_again() -> None:
    gpus = {"0000:1b:00.0": {"name": "NVIDIA H100 80GB HBM3", "fabric": "N/A"}}
    found = learn(parts(two_gpus(nvswitches=[], driver={"version": "580.159.04", "gpus": gpus})), FULL)
    assert found.missing == [
        (
            "nvswitch - Expected: known Actual: no NVSwitch on the PCI bus, and the driver reports no fabric. "
            "Add `nvswitch: true` or `false`."
        )
    ]


def test_a_real_virtual_machine_gives_its_gpu_and_asks_for_the_rest() -> None:
    found = learn(Parts.model_validate_json(text("h100_vm/platform_parts.json")), Given("this machine"))
    assert found.id == "server_h100_sxm"
    assert [line.partition(" - ")[0] for line in found.missing] == [
        "manufacturer and product",
        "nvswitch",
        "rack_units",
        "max_power",
    ]
    written = yaml.safe_load(found.text)
    assert (written["gpu"], written["gpus"], written["gpu_pci"]) == ("h100_sxm", 1, ["0000:00:06.0"])
    assert "host: memory could not be read (dmidecode is not installed). Host gates compare nothing without." in (
        found.questions
    )
