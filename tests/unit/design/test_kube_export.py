"""Values for the operators of a Kubernetes site: what they say for this site, and where each comes from."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rackready.design import check_kubernetes, kube_export, kube_network
from rackready.design.kube_queue import object_name
from rackready.design.mig_layouts import mig_layouts
from rackready.model.exported import Export, Sourced
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader
from rackready.render.exported import documents, plain
from tests.unit.design.kubernetes_sites import CASES, case, exported, site_with, text

HELD = {"key": "rackready.io/held", "operator": "Exists", "effect": "NoSchedule"}
SIM, NVL72 = "sim-k8s/site.yml", "examples/gb200-nvl72-8-racks.yml"


def files(export: Export) -> list[str]:
    return [file.name for file in export.files]


def read(export: Export, name: str) -> list[Any]:
    (file,) = [one for one in export.files if one.name == name]
    return documents(text(file))


@pytest.mark.parametrize("name", CASES)
def test_every_value_has_an_origin_and_the_text_says_what_the_data_say(name: str) -> None:
    for file in case(name).files:
        assert documents(text(file)) == [plain(document) for document in file.documents]
        bare = [item.path for document in file.documents for item in document if not item.source]
        assert set(bare) <= {("apiVersion",), ("kind",)}
        assert max(map(len, text(file).splitlines())) <= 160


def test_nothing_that_install_did_is_done_again() -> None:
    (values,) = read(exported(site_with(SIM)), "gpu-operator-values.yaml")
    assert [values[name]["enabled"] for name in ("driver", "toolkit", "dcgm", "migManager")] == [False] * 4
    assert "mig" not in values
    (policy,) = read(exported(site_with(SIM)), "nic-cluster-policy.yaml")
    assert sorted(policy["spec"]) == ["rdmaSharedDevicePlugin", "tolerations"]
    assert policy["spec"]["tolerations"] == [HELD]


def test_a_site_that_manages_dcgm_is_told_so() -> None:
    made = exported(site_with(SIM, {"manage_dcgm": False}))
    (values,) = read(made, "gpu-operator-values.yaml")
    assert not {"dcgm", "dcgmExporter"} & set(values)
    assert made.notes == ("software.manage_dcgm: false. Set dcgm and dcgmExporter as your own DCGM needs them.",)


def test_jobs_never_tolerate_the_taint_that_holds_nodes() -> None:
    for name in CASES:
        for body in read(case(name), "kueue.yaml"):
            assert "held" not in json.dumps(body)
            assert "example.com/wait" not in json.dumps(body)


def test_topology_has_the_sites_labels_and_the_host_below() -> None:
    labels = {"unit": "example.com/block", "rack": None, "gpu": None}
    topology, flavor = read(exported(site_with(SIM, labels=labels)), "kueue.yaml")
    assert topology["spec"]["levels"] == [{"nodeLabel": "example.com/block"}, {"nodeLabel": "kubernetes.io/hostname"}]
    assert flavor["spec"]["nodeLabels"] == {"rackready.io/platform": "dgx_h100"}
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"] == "sim-k8s"


def test_flavors_need_a_label() -> None:
    with pytest.raises(RackreadyError) as refused:
        exported(site_with(SIM, labels={"platform": None, "gpu": None}))
    assert str(refused.value) == (
        "handover.labels of site sim-k8s - Expected: a label for platform or gpu: a flavor of Kueue selects nodes by "
        "it Actual: null for both. Give one of them a key."
    )
    assert "kueue.yaml" in files(exported(site_with(SIM, labels={"platform": None})))


def test_the_dra_driver_comes_with_dra_only() -> None:
    assert "dra-driver-values.yaml" not in files(exported(site_with(SIM)))
    (values,) = read(exported(site_with(SIM, devices="dra")), "dra-driver-values.yaml")
    assert values["resources"] == {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}}
    assert values["gpuResourcesEnabledOverride"] is True
    assert "dra-driver-values.yaml" not in files(exported(site_with(NVL72)))


@pytest.mark.parametrize("devices", ["device-plugin", "dra"])
def test_nothing_turns_off_imex_of_the_nodes_which_install_starts(devices: str) -> None:
    made = exported(site_with(NVL72, devices=devices))
    assert "disable --now" not in " ".join(made.notes)
    assert sum("ComputeDomains are not supported" in note for note in made.notes) == 1
    if devices == "dra":
        (values,) = read(made, "dra-driver-values.yaml")
        assert values["resources"] == {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}}


def test_the_exporter_is_the_one_that_fits_the_nodes_host_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = exported(site_with(SIM))
    (values,) = read(made, "gpu-operator-values.yaml")
    assert values["dcgmExporter"]["version"] == "4.6.0-4.8.3-distroless"
    assert made.notes == ()
    own = loader.software("hgx-r580-debian12").model_copy(update={"dcgm": "1:4.7.0-1", "dcgm_exporter": ""})
    monkeypatch.setattr(loader, "software", lambda _name: own)
    made = exported(site_with(SIM))
    (values,) = read(made, "gpu-operator-values.yaml")
    assert "version" not in values["dcgmExporter"]
    (note,) = made.notes
    assert note == (
        "hgx-r580-debian12: no image of dcgm-exporter is known to fit DCGM 1:4.7.0-1. The chart has one image for all "
        "nodes, and an exporter of a newer DCGM does not start with an older host engine (GPU Operator documentation, "
        "Upgrading, DCGM and DCGM Exporter Versions): set dcgmExporter.version to one that is paired with the oldest "
        "DCGM of the cluster."
    )


def test_two_sets_with_different_dcgm_in_one_cluster_get_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_with(SIM)
    sets = [loader.software("hgx-r580-debian12")]
    sets.append(sets[0].model_copy(update={"dcgm": "1:4.5.3-1", "dcgm_exporter": "4.5.3-4.8.2-distroless"}))
    (view,) = kube_export._software(site)
    monkeypatch.setattr(kube_export, "_software", lambda _site: [view, view])
    turn = itertools.cycle(sets)
    monkeypatch.setattr(loader, "software", lambda _name: next(turn))
    made = kube_export.kube_export(site, site.handover, {})  # type: ignore[arg-type]
    (values,) = read(made, "gpu-operator-values.yaml")
    assert "version" not in values["dcgmExporter"]
    assert "known to fit DCGM 1:4.5.3-1 and 1:4.6.0-1." in made.notes[0]


def test_a_set_whose_exporter_is_of_another_dcgm_is_refused() -> None:
    own = loader.software("hgx-r580-debian12").model_dump()
    with pytest.raises(ValidationError, match=r"4\.6\.0-4\.8\.3-distroless is not paired with DCGM 4\.7\.0"):
        SoftwareProfile.model_validate({**own, "dcgm": "1:4.7.0-1"})


def test_dra_needs_a_driver_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_kubernetes, "_DRA", "581")
    with pytest.raises(SiteInvalidError) as refused:
        site_with(SIM, devices="dra")
    assert [str(problem) for problem in refused.value.problems] == [
        (
            "handover.devices: driver of node01, node02 - Expected: 581 or newer for NVIDIA's DRA driver Actual: "
            "580.173.02. Choose another driver (software.set), or device-plugin."
        )
    ]
    site_with(SIM)
    monkeypatch.setattr(check_kubernetes, "_DRA", "580.173.02")
    site_with(SIM, devices="dra")
    monkeypatch.setattr(check_kubernetes, "_DRA_DOMAINS", "580.173.03")
    site_with(SIM, devices="dra")
    with pytest.raises(SiteInvalidError) as refused:
        site_with(NVL72, devices="dra")
    assert "Expected: 580.173.03 or newer" in str(refused.value)


def test_rails_are_resources_of_their_own_unless_names_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(export: Export) -> list[dict[str, Any]]:
        (policy,) = read(export, "nic-cluster-policy.yaml")
        found: list[dict[str, Any]] = json.loads(policy["spec"]["rdmaSharedDevicePlugin"]["config"])["configList"]
        return found

    rails = config(exported(site_with(SIM)))
    assert [one["resourceName"] for one in rails] == [f"rail{rail}" for rail in range(1, 9)]
    assert rails[0]["selectors"] == {"vendors": ["15b3"], "ifNames": ["enp24s0np0"]}
    (ib,) = config(case("infiniband"))
    assert (ib["resourceName"], ib["selectors"]) == ("ib", {"vendors": ["15b3"], "linkTypes": ["infiniband"]})
    names = {1: {"eth1"}, 2: {"eth2", "eth1"}}
    monkeypatch.setattr(kube_network, "_named", lambda _platform, rail: names.get(rail, set()))
    (one,) = config(exported(site_with(SIM)))
    assert (one["resourceName"], one["selectors"]["ifNames"]) == ("rails", ["eth1", "eth2"])


def test_a_platform_without_published_names_is_named() -> None:
    made = exported(site_with(NVL72))
    assert "nic-cluster-policy.yaml" not in files(made)
    assert made.notes[-1] == (
        "gb200_nvl72: the interface names of its compute NICs are not published, so there is no file for the Network "
        "Operator."
    )


def test_layouts_of_mig_are_found_in_the_variables(tmp_path: Path) -> None:
    for name, said in {
        "group_vars/nodes.yml": "mig_configs:\n  small: []\nmig_layout: ''\n",
        "group_vars/platform_dgx_h200/mig.yml": "mig_layout: mixed  # since May\n",
        "host_vars/node07.yaml": 'x: 1\nmig_layout: "small"\n',
        "host_vars/node08.yml": "# mig_layout: no\nmore:\n  mig_layout: no\n",
        "site.yml": "mig_layout: no\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(said, encoding="utf-8")
    found = {"group_vars/platform_dgx_h200/mig.yml": "mixed", "host_vars/node07.yaml": "small"}
    assert mig_layouts(tmp_path) == found
    (values,) = read(exported(site_with(SIM), found), "gpu-operator-values.yaml")
    assert values["mig"] == {"strategy": "mixed"}
    assert mig_layouts(tmp_path / "absent") == {}


def test_values_below_one_key_share_it() -> None:
    document = (
        Sourced(("a", "b", "c"), 1, "one"),
        Sourced(("a", "b", "d"), [{"e": "f"}], "two"),
        Sourced(("a", "g"), "h\ni\n", ""),
        Sourced(("j",), value=False, source="three"),
    )
    (file,) = [one for one in exported(site_with(SIM)).files if one.name == "kueue.yaml"]
    made = text(type(file)("x.yaml", (), (document,)))
    assert made.splitlines()[1:] == [
        "a:",
        "  b:",
        "    # one",
        "    c: 1",
        "    # two",
        "    d:",
        "      - e: f",
        "  g: |",
        "    h",
        "    i",
        "# three",
        "j: false",
    ]


@pytest.mark.parametrize(("given", "name"), [("Site_A", "site-a"), ("x" * 70, "x" * 63), ("a.b-", "a-b")])
def test_names_of_objects(given: str, name: str) -> None:
    assert object_name(given) == name
