"""Several repositories of a simulated site: what each has, and that each is signed by its own key."""

from __future__ import annotations

import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from rackready.design.overlays import merge
from rackready.design.site import parse_site
from rackready.design.yaml import read_yaml
from rackready.model.site import Site
from rackready_sim import image, overlay, systems
from rackready_sim.definition import site_without_overlay
from rackready_sim.packages import repo
from rackready_sim.packages.contents import Content, contents
from rackready_sim.plan import build_plan
from rackready_sim.store import Store

ROOT = Path(__file__).resolve().parents[3]
TOOLKIT = {
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
}
NAMES = ["cuda-ubuntu2404", "cuda-ubuntu2204", "cuda-debian12", "cuda-el9", "toolkit-deb", "toolkit-rpm"]


@pytest.fixture
def site() -> Site:
    return site_without_overlay(ROOT, "sim-mixed")


def names(content: Content) -> set[str]:
    return {package.name for package in content.packages()}


def test_each_repository_has_the_packages_of_its_systems(site: Site) -> None:
    found = {content.name: content for content in contents(site)}
    assert list(found) == NAMES
    assert names(found["toolkit-deb"]) == names(found["toolkit-rpm"]) == TOOLKIT
    assert "nvidia-dkms-580-open" in names(found["cuda-ubuntu2404"])
    assert "nvidia-open" in names(found["cuda-debian12"])
    assert "kmod-nvidia-open-dkms" in names(found["cuda-el9"])
    assert not [name for name in NAMES[:4] if names(found[name]) & TOOLKIT]
    assert [content.rpm for content in found.values()] == [False, False, False, True, False, True]


def test_without_a_toolkit_repository_the_other_has_all(site: Site) -> None:
    kept = [item for item in site.software.repositories if not item.name.startswith("toolkit")]
    software = site.software.model_copy(update={"repositories": kept})
    for content in contents(site.model_copy(update={"software": software})):
        assert names(content) >= TOOLKIT


def test_the_one_mirror_of_a_site_has_all_at_its_root() -> None:
    [content] = contents(site_without_overlay(ROOT, "sim"))
    assert (content.name, content.rpm, content.part) == ("", False, "")
    assert names(content) >= TOOLKIT | {"nvidia-open"}


def test_every_node_has_the_system_of_its_set(site: Site) -> None:
    variants = {node.name: systems.of_node(site, node.name).image for node in site.nodes()}
    assert variants == {
        "node01": image.DEBIAN,
        "node02": image.DEBIAN,
        "node03": image.RHEL,
        "node04": image.DEBIAN,
    }
    assert systems.of_node(site, "node04") == systems.SYSTEMS["debian12"]


def test_two_repositories_are_signed_by_two_keys_that_the_overlay_declares(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    kept = [item for item in site.software.repositories if item.name in {"cuda-debian12", "toolkit-deb"}]
    groups = [group.model_copy(update={"set": "hgx-r580-debian12"}) for group in site.software.groups[:1]]
    update = {"repositories": kept, "set": "hgx-r580-debian12", "groups": groups}
    smaller = site.model_copy(update={"software": site.software.model_copy(update=update)})
    repo.build_repo(smaller, store.mirror)
    prints = {item.name: (store.mirror / item.name / "mirror.fpr").read_text(encoding="utf-8") for item in kept}
    assert len(set(prints.values())) == len(kept)
    for name, other in (("cuda-debian12", "toolkit-deb"), ("toolkit-deb", "cuda-debian12")):
        release = store.mirror / name / "InRelease"
        for owner, good in ((name, True), (other, False)):
            binary = tmp_path / f"{owner}.gpg"
            key = store.mirror / owner / "mirror.asc"
            subprocess.run(["gpg", "--yes", "--dearmor", "--output", binary, key], check=True, capture_output=True)
            done = subprocess.run(["gpgv", "--keyring", binary, release], check=False, capture_output=True)
            assert (done.returncode == 0) is good, (name, owner)
    plan = build_plan(smaller, clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8")
    monkeypatch.setattr(overlay, "_node", lambda name, *_: {"name": name})
    monkeypatch.setattr(overlay, "_switch", lambda switch, *_: {"name": switch.name})
    written = yaml.safe_load(yaml.safe_dump(overlay.build(smaller, plan, store)))
    merged = merge(read_yaml(ROOT / "inventories/sim-mixed/site.yml"), {"software": written["software"]})
    declared = {item.name: item for item in parse_site(merged, source="test", base=ROOT).software.repositories}
    assert {name: declared[name].fingerprint for name in prints} == prints
    assert declared["toolkit-deb"].url == "http://10.64.7.2:8080/toolkit-deb"


def test_a_repository_that_left_the_site_leaves_the_mirror(site: Site, tmp_path: Path) -> None:
    kept = [item for item in site.software.repositories if item.name == "toolkit-deb"]
    smaller = site.model_copy(update={"software": site.software.model_copy(update={"repositories": kept})})
    out = tmp_path / "mirror"
    (out / "old").mkdir(parents=True)
    (out / "old/Packages").touch()
    repo.build_repo(smaller, out)
    assert [path.name for path in out.iterdir()] == ["toolkit-deb"]
    before = (out / "toolkit-deb").stat().st_ino
    repo.build_repo(smaller, out)
    assert (out / "toolkit-deb").stat().st_ino == before, "built once"
