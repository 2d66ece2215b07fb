"""Further refusals of planning by exact text: cable ends, AS numbers, power cycles, lists, secrets, layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.addresses import addresses
from rackready.design.cabling import runs
from rackready.design.cabling.sockets import Socket, SwitchPorts
from rackready.design.capacity.graph import structure_problems
from rackready.design.plan import fabric_of
from rackready.design.secrets import SecretUnreadableError, reveal
from rackready.design.site import parse_site
from rackready.design.sizing import candidates
from rackready.design.sizing.hugging_face import read_config
from rackready.design.sizing.parallel import Layout
from rackready.design.sizing.serving_memory import ServingJob
from rackready.design.sizing.training_memory import TrainingJob
from rackready.design.topology import prove as proving
from rackready.design.topology.prove import Design, prove
from rackready.design.topology.types import EndpointLink, FabricPlan, TopoSwitch
from rackready.model.base import SecretRef
from rackready.model.facility import PowerNode
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.profiles import loader
from tests.unit.design.cabling.kit import lab
from tests.unit.design.topology.fabrics import fabric
from tests.unit.design.written import example, parse, refusals, texts


def troubles(link: EndpointLink, model: str = "qm9700") -> list[str]:
    """Return the problems of a fabric of one leaf and one link of the H100 example; the leaf has the first slot."""
    made = FabricPlan((TopoSwitch("leaf-x", "leaf", 1, 1, 1, model, 64, 1, 1),), (link,))
    return texts(runs.site_runs(parse(example("h100-1su-infiniband")), made).problems)


LINK = EndpointLink("a01-n1", 1, 1, "leaf-x", 1)


def test_a_switch_without_ports_of_the_links_rate() -> None:
    assert troubles(LINK, "sn2201") == [
        "leaf-x: ports of 400 Gb/s - Expected: at least one Actual: sn2201 has none. Use another model."
    ]


def test_a_rail_that_a_server_does_not_have() -> None:
    assert troubles(LINK._replace(nic=9)) == [
        "a01-n1: rail 9 - Expected: a NIC of dgx_h100 Actual: none. Correct the link."
    ]


def test_unpublished_cages(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Socket("p1", "p1", 0, 1, "")
    with monkeypatch.context() as patched:
        patched.setattr(runs, "nic_socket", lambda *_: bare)
        assert troubles(LINK) == [
            (
                "platform dgx_h100: cage of rail 1 - Expected: known Actual: not published. "
                "Add it to the profile, with its source."
            )
        ]
    monkeypatch.setattr(runs, "switch_ports", lambda *_: SwitchPorts((bare,), 4, "infiniband"))
    assert troubles(LINK) == [
        "switch model qm9700: cage - Expected: known Actual: not published. Add it to the profile, with its source."
    ]


def test_a_sub_port_that_is_too_slow_for_its_link() -> None:
    document = lab()
    document["switches"][0]["ports"] = [{"ports": "swp1", "breakout": 4}]
    document["links"][0]["ports"] = "swp1s0-swp1s3"
    assert texts(runs.site_runs(parse(document)).problems) == [
        "leaf01: port swp1s2 - Expected: a port of sn5600 Actual: none. Correct the link.",
        "leaf01: port swp1s3 - Expected: a port of sn5600 Actual: none. Correct the link.",
    ]


@pytest.mark.parametrize(
    ("first", "leaf"),
    [(4_294_967_290, 4_295_067_290), (64_512, 164_512), (3_320, 103_320)],
    ids=["beyond-the-last", "leafs-beyond-16-bit", "somebody-elses"],
)
def test_as_numbers_that_are_not_private(first: int, leaf: int) -> None:
    document = example("b200-4su-roce")
    document["networks"]["underlay"]["asn_first"] = first
    site = parse(document)
    found = texts(addresses(site, fabric_of(site)).problems)
    assert found[0] == (
        f"networks.underlay.asn_first: leaf-su001-r1 would get AS {leaf} - "
        "Expected: 64512 to 65534 or 4200000000 to 4294967294 (private, RFC 6996). "
        "Start at 4200000000: leafs are numbered from 100000 above it."
    )


def test_power_in_a_circle() -> None:
    circle = [
        PowerNode(name="ups-1", kind="ups", fed_by=["rpp-1"]),
        PowerNode(name="rpp-1", kind="rpp", fed_by=["ups-1"]),
    ]
    (problem,) = structure_problems(circle)
    assert str(problem) in {
        f"facility.power: power runs in a circle: {way} - Expected: each node fed from upstream. "
        "Remove one of these from fed_by."
        for way in ("ups-1 <- rpp-1 <- ups-1", "rpp-1 <- ups-1 <- rpp-1")
    }


def test_feeders_that_cannot_be() -> None:
    nodes = [
        PowerNode(name="grid", kind="utility", fed_by=["ups-1"]),
        PowerNode(name="ups-1", kind="ups"),
        PowerNode(name="rpp-1", kind="rpp", fed_by=["ups-1", "ups-1"], sharing="shared"),
    ]
    assert [str(problem) for problem in structure_problems(nodes)] == [
        (
            "facility.power[0].fed_by: grid is a utility - Expected: no fed_by Actual: ups-1. "
            "Remove it, or correct the kind."
        ),
        (
            "facility.power[2].fed_by[1]: power node ups-1 is listed twice in fed_by of rpp-1 - Expected: once. "
            "Remove one of the two."
        ),
    ]


def test_devices_of_a_rack_that_are_no_list() -> None:
    document = example("h100-1su-infiniband")
    document["racks"][2]["devices"] = {"name": "ufm-1"}
    assert "racks[2].devices: Expected: a list Actual: something else. Correct it." in refusals(document)


def test_a_site_file_that_is_no_mapping() -> None:
    with pytest.raises(SiteInvalidError) as refused:
        parse_site([], source="site.yml", base=Path("/base"))
    assert str(refused.value.problems[0]).removeprefix(": ") == (
        "Expected: a mapping Actual: a list. Start one from inventories/example/site.yml."
    )


def test_secrets_that_are_not_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    gone = tmp_path / "gone"
    for ref, text in (
        (
            SecretRef(env="NOWHERE"),
            "secret in environment variable NOWHERE - Expected: a value Actual: not set. Export NOWHERE and run again.",
        ),
        (
            SecretRef(file=gone),
            (
                f"secret in file {gone} - Expected: a readable file Actual: no such file. "
                "Put the secret there (mode 0600) and run again."
            ),
        ),
        (
            SecretRef(file=empty),
            (
                f"secret in file {empty} - Expected: a value Actual: empty file. "
                "Put the secret there (mode 0600) and run again."
            ),
        ),
    ):
        with pytest.raises(SecretUnreadableError) as refused:
            reveal(ref)
        assert str(refused.value) == text


MODEL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4097 * 17,
    "num_hidden_layers": 2,
    "num_attention_heads": 17,
    "num_key_value_heads": 17,
    "vocab_size": 1000,
    "intermediate_size": 1000,
    "torch_dtype": "bfloat16",
}


def test_no_layout_divides_the_gpus() -> None:
    model, _ = read_config(MODEL, "config.json")
    gpu, server = loader.gpu("h100_sxm"), loader.platform("dgx_h100")
    with pytest.raises(RackreadyError) as refused:
        candidates.train_on(server, gpu, model, TrainingJob(128, 1), Layout(0, 2), 15, 0.4)
    assert str(refused.value) == (
        "dgx_h100: no layout of llama is possible on it - Expected: degrees that divide 17 heads and the GPUs "
        "Actual: none. "
        "Set --tp and --pp, or another --gpus."
    )


def test_reasons_against_every_layout_are_reported() -> None:
    model, _ = read_config(MODEL, "config.json")
    gpu, server = loader.gpu("h100_sxm"), loader.platform("dgx_h100")
    with pytest.raises(RackreadyError) as refused:
        candidates.serve_on(server, gpu, model, ServingJob(128), Layout(0, 4), None)
    assert (
        str(refused.value)
        == "--pp 4: the model has fewer layers than pipeline stages - Expected: at most 2 Actual: 4. Lower it."
    )


def test_heads_that_cannot_be_grouped() -> None:
    with pytest.raises(RackreadyError) as refused:
        read_config({**MODEL, "num_key_value_heads": 5}, "config.json")
    assert str(refused.value) == (
        "config.json - Expected: the shape of one model "
        "Actual: 17 heads cannot share 5 key and value heads evenly. Correct the file."
    )


def test_a_flow_below_what_endpoints_can_send() -> None:
    plan = fabric(32, 8, 16, 4)
    proof = prove(plan.switches, plan.endpoints, plan.trunks[: len(plan.trunks) // 2], Design())
    first = (
        "topology: max-flow of plane 1, first half of the units against the second - Expected: 64 links Actual: 0. "
        "Compare the trunks with the cable list."
    )
    assert first in texts(proof.problems)


def test_a_cross_check_that_looked_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fabric(32, 8, 16, 4)
    monkeypatch.setattr(proving.cuts, "flows", lambda *_: [])
    assert texts(prove(plan.switches, plan.endpoints, plan.trunks, Design()).problems) == [
        (
            "topology: max-flow of plane 1 - Expected: at least one cut Actual: none over 16 leafs. "
            "Report this: the proof is incomplete."
        ),
    ]
