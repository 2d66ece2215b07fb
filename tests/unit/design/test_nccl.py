"""NCCL's settings in a site: what is refused and where, and what the nodes and the gates get.

Values: NVIDIA/nccl @0186f08, docs/userguide/source/env.rst.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.hostvars import platform_vars
from rackready.design.site import parse_site
from rackready.gates.engine.registry import gate
from rackready.model.nccl import SETTINGS, Nccl
from rackready.model.problems import SiteInvalidError
from rackready.profiles import loader
from tests.gates.support import rack
from tests.unit.design.written import ROOT, example, parse, refusals

LAB = "lab-4-nodes"
RAILS = "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"
AT = "fabric.nccl.settings"


def sim(**nccl: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["fabric"]["nccl"] = nccl
    return document


def wrong(**settings: int | str) -> list[str]:
    return refusals(sim(settings=settings))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("NCCL_IB_TIMEOUT", 32, "NCCL_IB_TIMEOUT is 32 - Expected: a whole number from 1 to 31. Correct the value."),
        ("NCCL_CROSS_NIC", "two", "NCCL_CROSS_NIC is two - Expected: a whole number from 0 to 2. Correct the value."),
        ("NCCL_IB_SL", "010", "NCCL_IB_SL is 010 - Expected: a whole number from 0 to 15. Correct the value."),
        (
            "NCCL_NET_GDR_LEVEL",
            "LOC",
            "NCCL_NET_GDR_LEVEL is LOC - Expected: one of PIX, PXB, PHB, SYS. Correct the value.",
        ),
        ("NCCL_IB_TC", 106, "NCCL_IB_TC follows from fabric.qos. Set fabric.qos instead."),
        ("NCCL_NET", "IB", "NCCL_NET follows from fabric.nccl_net. Set fabric.nccl_net instead."),
        (
            "NCCL_IB_TIMEOT",
            22,
            (
                "NCCL_IB_TIMEOT is no setting of NCCL that a site may declare - "
                "Expected: a name such as NCCL_IB_TIMEOUT. "
                "docs/howto/nic-stack.md names them and says what is left out."
            ),
        ),
        (
            "LD_PRELOAD",
            "x.so",
            (
                "LD_PRELOAD is no setting of NCCL that a site may declare - "
                "Expected: a name of docs/howto/nic-stack.md. "
                "docs/howto/nic-stack.md names them and says what is left out."
            ),
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_path(name: str, value: int | str, text: str) -> None:
    assert wrong(**{name: value}) == [f"{AT}.{name}: {text}"]


def test_the_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(SiteInvalidError, match=r"^site\.yml: 1 problem") as caught:
        parse_site(sim(settings={"NCCL_IB_TIMEOUT": 32}), source="site.yml", base=tmp_path)
    assert f"{AT}.NCCL_IB_TIMEOUT" in str(caught.value)


def test_hcas_are_those_of_the_rails_in_rail_order() -> None:
    turned = RAILS.replace("=mlx5_0,mlx5_3", "=mlx5_3,mlx5_0")
    text = (
        f"{AT}.NCCL_IB_HCA: NCCL_IB_HCA is {turned}, on dgx_h100 - Expected: {RAILS}, its rails in their order. "
        "Correct it, or set it for each platform under fabric.nccl.platforms."
    )
    assert wrong(NCCL_IB_HCA=turned) == [text]
    assert refusals(sim(platforms={"dgx_h100": {"NCCL_IB_HCA": turned}}))[0].startswith(
        "fabric.nccl.platforms.dgx_h100.NCCL_IB_HCA: "
    )
    parse(sim(settings={"NCCL_IB_HCA": RAILS}))


def test_an_unknown_platform_and_a_fabric_that_is_not_roce_are_refused() -> None:
    assert refusals(sim(platforms={"dgx_h1000": {}}))[0].startswith(
        "fabric.nccl.platforms.dgx_h1000: platform profile 'dgx_h1000' does not exist - Expected: one of "
    )
    document = example("h100-1su-infiniband")
    document["fabric"]["nccl"] = {"settings": {"NCCL_IB_TIMEOUT": 22}}
    text = (
        "fabric.nccl: rackready writes NCCL's settings on RoCE fabrics only, and fabric.kind is infiniband. "
        "Remove it, and let the nodes' image bring /etc/nccl.conf."
    )
    assert refusals(document) == [text]


def test_nodes_get_the_settings_of_all_and_of_their_platform() -> None:
    nccl = {
        "settings": {"NCCL_IB_TIMEOUT": 22, "NCCL_CROSS_NIC": 0},
        "platforms": {"dgx_h100": {"NCCL_IB_TIMEOUT": 20}, "dgx_b200": {"NCCL_IB_QPS_PER_CONNECTION": 4}},
    }
    site = parse(sim(**nccl))
    assert platform_vars(site, loader.platform("dgx_h100"))["host_roce_nccl"] == {
        "NCCL_CROSS_NIC": "0",
        "NCCL_IB_TIMEOUT": "20",
    }


def test_the_gates_of_nccl_run_with_them_and_keep_their_own() -> None:
    plain = rack(2)
    nccl = Nccl(settings={"NCCL_IB_TIMEOUT": 22})
    turned = {name: replace(node, nics=node.nics[::-1]) for name, node in plain.nodes.items()}
    facts = replace(plain, nodes=turned, fabric=plain.fabric.model_copy(update={"nccl": nccl}))
    (run,) = gate("pair/fabric/performance/nccl-all-reduce-ring").plan(facts, sorted(turned))
    launch = next(command.argv for command in run.commands if command.key == "launch0")
    assert {"NCCL_IB_TIMEOUT=22", f"NCCL_IB_HCA={RAILS}", "NCCL_ALGO=RING"} <= set(launch)
    alone = gate("node/gpu/performance/nccl-all-reduce").plan(facts, sorted(turned))[0]
    assert alone.commands[0].env["NCCL_IB_TIMEOUT"] == "22"


def test_the_guide_names_every_setting() -> None:
    text = (ROOT / "docs/howto/nic-stack.md").read_text(encoding="utf-8")
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []
