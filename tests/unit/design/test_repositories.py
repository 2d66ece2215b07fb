"""Several package repositories of a site: which nodes use which, and that each key is the declared one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.deployable import NotDeployableError, require
from rackready.design.hostvars import groups
from rackready.design.openpgp import fingerprints
from rackready.design.repositories import keys_in
from rackready.design.site import parse_site
from rackready.drivers.mirror import keys
from rackready.model.problems import SiteInvalidError
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[3]
ONE, OTHER = "1" * 40, "2" * 40


def made(folder: Path, algorithm: str = "ed25519") -> Path:
    """Return the file of a new public key."""
    target = folder / f"{algorithm}.asc"
    with keys.home() as place:
        argv = place.argv("--quick-generate-key", f"{folder.name} {algorithm}", algorithm, "sign", "never")
        subprocess.run(argv, check=True, capture_output=True)
        place.export(target, armored=True)
    return target


def entry(**more: Any) -> dict[str, Any]:
    return {
        "name": "cuda",
        "kind": "apt",
        "url": "http://m.example/cuda",
        "key": "keys/cuda.asc",
        "fingerprint": ONE,
    } | more


def site_of(*entries: dict[str, Any], base: Path = ROOT, **software: Any) -> Site:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["software"] |= {"repositories": list(entries), **software}
    if "mirror" not in software:
        del document["software"]["mirror"]
    return parse_site(document, source="site.yml", base=base)


def refusals(*entries: dict[str, Any], **software: Any) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        site_of(*entries, **software)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("algorithm", ["ed25519", "rsa3072", "nistp256"])
def test_a_fingerprint_is_the_one_that_gpg_reports(algorithm: str, tmp_path: Path) -> None:
    key = made(tmp_path, algorithm)
    assert fingerprints(key.read_bytes()) == keys.fingerprints(key)
    binary = subprocess.run(["gpg", "--dearmor"], input=key.read_bytes(), check=True, capture_output=True).stdout
    assert fingerprints(binary) == keys.fingerprints(key)
    assert keys_in(key) == keys.fingerprints(key)[0]


def test_a_file_of_several_keys_has_several_fingerprints(tmp_path: Path) -> None:
    one, two = made(tmp_path, "ed25519"), made(tmp_path, "rsa3072")
    both = tmp_path / "both.asc"
    both.write_bytes(one.read_bytes() + two.read_bytes())
    assert keys_in(both) == f"{keys_in(one)}, {keys_in(two)}"


@pytest.mark.parametrize(
    "data", [b"", b"a key\n", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!\n", b"\x99", b"\xc6\xff\x00"]
)
def test_what_is_no_key_has_no_fingerprint(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no OpenPGP public key|ASCII armor cannot be read"):
        fingerprints(data)


def test_each_node_gets_the_repositories_of_its_system() -> None:
    site = site_of(
        entry(systems=["debian12"]),
        entry(name="toolkit", url="http://m.example/toolkit", suite="stable", components=["main"], fingerprint=OTHER),
        entry(name="cuda-el9", kind="rpm", signed_index=False),
        groups=[{"name": "rocky", "nodes": ["node03"], "set": "hgx-r580-el9"}],
    )
    found = groups(site)
    debian, rocky = (found[name]["vars"] for name in ("nodes", "software_rocky"))
    assert debian["base_mirror_url"] == rocky["base_mirror_url"] == ""
    assert [item["name"] for item in debian["base_repositories"]] == ["cuda", "toolkit"]
    assert debian["base_repositories"][1] == {
        "name": "toolkit",
        "url": "http://m.example/toolkit",
        "suite": "stable",
        "components": ["main"],
        "key": str(ROOT / "keys/cuda.asc"),
        "fingerprint": OTHER,
        "package_fingerprints": [],
        "signed_index": True,
    }
    assert [(item["name"], item["signed_index"]) for item in rocky["base_repositories"]] == [("cuda-el9", False)]


def test_the_single_form_stays_valid_alone_and_beside_others() -> None:
    mirror = {"url": "http://m.example", "suite": "./", "key": "keys/mirror.asc"}
    alone, both = site_of(mirror=mirror), site_of(entry(), mirror=mirror)
    assert groups(alone)["nodes"]["vars"]["base_repositories"] == []
    assert groups(both)["nodes"]["vars"]["base_mirror_url"] == "http://m.example"
    assert [item["name"] for item in groups(both)["nodes"]["vars"]["base_repositories"]] == ["cuda"]


ROCKY = [{"name": "rocky", "nodes": ["node03"], "set": "hgx-r580-el9"}]
MIRROR = {"url": "http://m.example", "suite": "./", "key": "keys/mirror.asc"}
WRONG: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    (
        [],
        {},
        (
            "software.repositories: no repository for nodes with debian12 - Expected: at least one of kind apt. "
            "Declare it, or software.mirror."
        ),
    ),
    (
        [entry()],
        {"groups": ROCKY},
        (
            "software.repositories: no repository for nodes with el9 - Expected: at least one of kind rpm. "
            "Declare it, or software.mirror."
        ),
    ),
    (
        [],
        {"groups": ROCKY, "mirror": MIRROR},
        (
            "software.mirror: one mirror for nodes with apt and nodes with dnf - Expected: a repository of each kind. "
            "Declare software.repositories instead."
        ),
    ),
    (
        [entry(), entry(name="more", systems=["ubuntu2404"])],
        {},
        (
            "software.repositories[1].systems: no node has ubuntu2404 - Expected: some of debian12. Correct the name, "
            "or leave it out."
        ),
    ),
]


@pytest.mark.parametrize(("entries", "software", "text"), WRONG)
def test_wrong_repositories_are_refused_at_their_place(
    entries: list[dict[str, Any]], software: dict[str, Any], text: str
) -> None:
    assert refusals(*entries, **software) == [text]


def test_an_unknown_set_is_refused_once_and_not_the_repositories_of_its_system() -> None:
    groups = [{"name": "rocky", "nodes": ["node03"], "set": "hgx-r580-el8"}]
    [text] = refusals(entry(), entry(name="cuda-el8", kind="rpm", systems=["el8"]), groups=groups)
    assert text.startswith("software.groups[0].set: software profile 'hgx-r580-el8' does not exist")


def test_a_name_is_given_once_and_a_fingerprint_has_its_form() -> None:
    assert "software.repositories" in refusals(entry(), entry())[0]
    assert "software.repositories[0].fingerprint" in refusals(entry(fingerprint="EB69"))[0]


def test_a_key_with_another_fingerprint_is_refused_before_any_change(tmp_path: Path) -> None:
    key = made(tmp_path)
    actual = keys.fingerprints(key)[0]
    site = site_of(entry(key=str(key)))
    with pytest.raises(NotDeployableError) as caught:
        require(site, ["node01"], "install")
    assert caught.value.args[0].splitlines()[1] == (
        f"  software.repositories cuda: {key} - Expected: the key {ONE} and no other Actual: {actual}. Compare both "
        "with what the repository's owner publishes, then correct key or fingerprint."
    )
    spaced = " ".join(actual[place : place + 4] for place in range(0, 40, 4)).lower()
    require(site_of(entry(key=str(key), fingerprint=spaced)), ["node01"], "install")


def test_a_second_key_in_the_file_is_refused_and_so_is_no_file(tmp_path: Path) -> None:
    one, two = made(tmp_path, "ed25519"), made(tmp_path, "rsa3072")
    both = tmp_path / "both.asc"
    both.write_bytes(one.read_bytes() + two.read_bytes())
    for key, words in (
        (both, f"Actual: {keys_in(one)}, {keys_in(two)}."),
        (tmp_path / "none.asc", "Actual: no readable file"),
    ):
        with pytest.raises(NotDeployableError) as caught:
            require(site_of(entry(key=str(key), fingerprint=keys_in(one))), ["node01"], "install")
        assert words in str(caught.value)


def test_the_keys_of_packages_are_declared_beside_that_of_the_index(tmp_path: Path) -> None:
    """The key file of a mirror of rpm packages: they keep the signatures of their upstreams."""
    one, two, three = (made(tmp_path, kind) for kind in ("ed25519", "rsa3072", "nistp256"))
    first, second, third = map(keys_in, (one, two, three))
    file = tmp_path / "mirror.asc"
    file.write_bytes(two.read_bytes() + one.read_bytes())
    rpm = entry(name="el9", kind="rpm", key=str(file), fingerprint=first)

    def check(*more: str) -> None:
        site = site_of(entry(key=str(one), fingerprint=first), rpm | {"package_fingerprints": more}, groups=ROCKY)
        require(site, ["node03"], "install")

    check(second)
    check(first, second.lower())
    for more, expected in (((), f"the key {first} and no other"), ((third, second), f"the keys {first}, ")):
        with pytest.raises(NotDeployableError) as caught:
            check(*more)
        assert f"software.repositories el9: {file} - Expected: {expected}" in str(caught.value)
        assert f"Actual: {second}, {first}. Compare" in str(caught.value)


def test_an_apt_repository_has_no_keys_of_packages() -> None:
    [text] = refusals(entry(package_fingerprints=[OTHER]))
    assert text == (
        "software.repositories[0].package_fingerprints: apt checks the index alone, and the index has the hash of "
        "every package - Expected: none for kind apt. Leave them out."
    )


def test_a_binary_key_is_refused_because_apt_and_dnf_get_it_as_text(tmp_path: Path) -> None:
    key = made(tmp_path)
    binary = tmp_path / "key.gpg"
    done = subprocess.run(["gpg", "--dearmor"], input=key.read_bytes(), check=True, capture_output=True)
    binary.write_bytes(done.stdout)
    assert keys_in(binary) == f"{keys_in(key)}, not ASCII armoured"
