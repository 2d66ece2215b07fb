"""The overlay: what differs on this machine, in the site file's own shape, and no secret in it."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from rackready.design.overlays import merge
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.drivers.bmc_authority import load
from rackready.model.bmc import BmcAuthority
from rackready_sim import overlay
from rackready_sim.definition import site_without_overlay
from rackready_sim.plan import build_plan
from rackready_sim.store import Store
from rackready_sim.tls import ensure_certificates
from tests.unit.sim.site_ca import SUBJECT, make

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    site = site_without_overlay(ROOT, "sim")
    store = Store(tmp_path)
    store.ensure_secrets(["node01"], ["leaf01"])
    plan = build_plan(site, clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8")
    path = tmp_path / "overlay.yml"
    overlay.write(path, overlay.build(site, plan, store))
    return path


def test_merged_over_the_site_file_it_is_a_valid_site_with_real_addresses(written: Path, tmp_path: Path) -> None:
    raw = merge(read_yaml(ROOT / "inventories/sim/site.yml"), read_yaml(written))
    site = parse_site(raw, source="test", base=ROOT)
    node = site.node("node03")
    assert str(node.address) == "10.64.7.13"
    assert (str(node.bmc.address), node.bmc.port, node.bmc.ca) == (
        "127.9.8.103",
        8443,
        tmp_path / ".rackready/sim/tls/ca.pem",
    )
    assert node.serial == "SIM-DGXH100-0003"
    assert [str(switch.address) for switch in site.switches] == ["10.64.7.21", "10.64.7.22"]
    assert site.software.mirror.url == "http://10.64.7.2:8080"
    assert site.handover.kind == "slurm"
    assert str(site.handover.controller) == "10.64.7.5"
    assert len(site.links) == 8


def test_it_changes_nothing_but_addresses_ports_keys_and_the_mirror(written: Path) -> None:
    before, after = (site_without_overlay(ROOT, "sim").model_dump(mode="json"), None)
    after = parse_site(
        merge(read_yaml(ROOT / "inventories/sim/site.yml"), read_yaml(written)), source="test", base=ROOT
    ).model_dump(mode="json")
    changed = set(_differences(before, after))
    allowed = ("address", "port", "ca", "file", "private_key", "controller", "url", "key")
    assert changed
    assert not [path for path in changed if path.rsplit(".", 1)[-1] not in allowed]


def test_only_its_owner_can_read_it_and_no_password_stands_in_it(written: Path, tmp_path: Path) -> None:
    assert written.stat().st_mode & 0o777 == 0o600
    text = written.read_text()
    for secret in (tmp_path / ".rackready/sim/secrets").iterdir():
        assert secret.read_text() not in text
        assert secret.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(text)


def _differences(one: object, two: object, path: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(two, dict):
        return [
            found
            for key in one.keys() | two.keys()
            for found in _differences(one.get(key), two.get(key), f"{path}.{key}")
        ]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [
            found
            for index, pair in enumerate(zip(one, two, strict=True))
            for found in _differences(*pair, f"{path}[{index}]")
        ]
    return [] if one == two else [path]


def test_a_site_with_a_ca_for_its_bmcs_gets_that_of_the_rack(tmp_path: Path) -> None:
    site = site_without_overlay(ROOT, "sim")
    plan = build_plan(site, clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8")
    store = Store(tmp_path)
    assert "bmc_authority" not in overlay.build(site, plan, store)
    with_ca = site.model_copy(update={"bmc_authority": make(tmp_path / "site").model()})
    ensure_certificates(store.tls, {"node01": "127.9.8.101"})
    found = BmcAuthority.model_validate(overlay.build(with_ca, plan, store)["bmc_authority"] | {"subject": SUBJECT})
    assert load(found).name == "CN=rackready simulated rack", "one that can sign"
