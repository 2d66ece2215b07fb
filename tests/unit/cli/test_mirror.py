"""`rackready mirror` for a whole site: the simulated vendor's packages, and stand-ins for those of the system."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.cli import mirror
from rackready.design.site import load_site
from rackready.design.software_of import only
from rackready.drivers.mirror import keys
from rackready.drivers.mirror.build import Built
from rackready.drivers.mirror.plan import plan
from rackready.drivers.mirror.tools import MirrorError
from rackready.drivers.role_packages import asked_for
from rackready.model.problems import SiteInvalidError
from rackready.paths import EnvPaths
from rackready.profiles import loader
from rackready_sim.packages import kernel, recipes, repo
from rackready_sim.packages.deb import Deb
from tests.unit.mirror.upstream import order

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[3]
FREE = "sha256:" + "0" * 64
IMAGE = {"id": "node/gpu/stress/hpl", "inputs": {"image": f"nvcr.io/hpc@{FREE}"}}
TAGGED = {"id": "cluster/fabric/stress/ddp-step", "inputs": {"image": "registry/torch:26.01"}}

needs_apt = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "apt-ftparchive", "gpg"))), reason="needs apt-get, apt-ftparchive and gpg"
)


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with all that the roles ask for on a simulated site."""
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim/site.yml", root=Path("/checkout"))
    found = recipes.packages(loader.software(site.software.set), "580.173.02")
    asked = asked_for(site, ROOT, loader.platform("dgx_h100")).packages()
    have = {package.name for package in found} | {"openmpi-bin"}
    own = [Deb(name, "1-1", "stands in for the system's") for name in (*asked, "libc6") if name not in have]
    own.append(Deb("openmpi-bin", "4.1.4-3", "stands in for the system's"))
    provided = {
        name for package in [*found, *own] for name in (package.name, *_names(package.fields.get("Provides", "")))
    }
    for package in found:
        for name in _names(package.fields.get("Depends", "")) - provided:
            own.append(Deb(name, "9:99-1", "stands in for the system's"))
            provided.add(name)
    out = tmp_path_factory.mktemp("vendor") / "repo"
    out.mkdir()
    with repo._signing_key(out, 730, "ed25519") as home:
        repo._write_apt([*found, *own], out)
        repo._sign(out, home, 730)
    return out


def _names(field: str) -> set[str]:
    return {item.split("|")[0].split("(")[0].strip() for item in field.split(",") if item.strip()}


@pytest.fixture
def site(call: Call, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that gives the checkout's site these upstreams and other values."""
    _ = call
    (tmp_path / "playbooks").rmdir()
    (tmp_path / "playbooks").symlink_to(ROOT / "playbooks")
    (tmp_path / "roles").symlink_to(ROOT / "roles")
    path = tmp_path / "inventories/sim/site.yml"

    def write(upstreams: list[dict[str, Any]], **more: Any) -> Path:
        document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text()) | more
        document["software"]["upstreams"] = upstreams
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def entry(folder: Path, **more: Any) -> dict[str, Any]:
    key = folder / "mirror.asc"
    return {
        "name": "vendor",
        "url": f"file://{folder}",
        "key": str(key),
        "fingerprint": keys.fingerprints(key)[0],
    } | more


@needs_apt
def test_a_site_gets_its_mirror(call: Call, site: Callable[..., Path], vendor: Path, tmp_path: Path) -> None:
    site([entry(vendor)], gates={"set": "bringup", "also": [IMAGE, TAGGED]})
    out, tar = tmp_path / "srv/mirror", tmp_path / "carry.tar"
    arguments = ("mirror", "--out", str(out), "--kernel", kernel.release())
    code, text, _ = call(*arguments, "--check")
    assert code == 0, text
    assert "│ nvidia-kernel-open-dkms" in text
    assert "580.178.01" not in text
    assert text.count("nothing was built") == 1
    code, text, _ = call(*arguments, "--archive", str(tar), "--output", "json")
    assert code == 0, text
    document = json.loads(text)
    names = {item["name"] for item in document["packages"]}
    assert {"nvidia-open", "dkms", "gcc", "slurmd", "chrony", f"linux-headers-{kernel.release()}"} <= names
    assert (document["changed"], document["archive_written"], len(document["fetch"])) == (True, True, len(names))
    assert [(item["image"], item["digest"]) for item in document["images"]] == [
        (f"nvcr.io/hpc@{FREE}", FREE),
        ("registry/torch:26.01", ""),
    ]
    assert any("registry/torch:26.01 has no digest" in note for note in document["notes"])
    assert any("is not the key of this mirror and its packages" in note for note in document["notes"])
    code, text, _ = call(*arguments, "--archive", str(tar))
    assert code == 0
    assert f"{out}: nothing new. {len(names)} packages" in text
    assert f"{tar}: nothing new" in text
    trusted = tmp_path / ".rackready/sim/mirror/mirror.asc"
    trusted.parent.mkdir(parents=True)
    shutil.copy(out / "mirror.asc", trusted)
    site([])  # inside, where no upstream is
    code, text, _ = call("mirror", "--verify", "--out", str(out))
    assert (code, f"{out}: good." in text, f"checked with {trusted}" in text) == (0, True, True)
    shutil.copy(vendor / "mirror.asc", trusted)
    code, _, error = call("mirror", "--verify", "--out", str(out))
    assert code == 2
    assert "Actual: a signature by another key" in error


def test_a_site_without_upstreams_is_refused(call: Call, site: Callable[..., Path]) -> None:
    site([])
    code, out, error = call("mirror", "--output", "json")
    assert code == 2
    assert json.loads(out)["error"] == error.strip()
    assert error.startswith("software.upstreams - Expected: the repositories to copy from Actual: none. Declare each")


def test_options_that_do_not_go_together_are_refused(call: Call, site: Callable[..., Path], tmp_path: Path) -> None:
    site([])
    assert "--verify - Expected: alone Actual: with --check" in call("mirror", "--verify", "--check")[2]
    assert "Expected: a mirror that `rackready mirror` made" in call("mirror", "--verify", "--out", str(tmp_path))[2]


@needs_apt
def test_files_that_are_not_there_are_named(call: Call, site: Callable[..., Path], vendor: Path) -> None:
    site([entry(vendor)])
    assert (
        "status - Expected: dpkg's status file of a node Actual: no file" in call("mirror", "--installed", "status")[2]
    )
    assert "no.asc - Expected: a secret key Actual: no file" in call("mirror", "--signing-key", "no.asc")[2]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"fingerprint": "ABCD"}, "software.upstreams[0].fingerprint"),
        ({"url": "http://user:secret@host/x"}, "has a user or password"),
        ({"name": "Two Words"}, "software.upstreams[0].name"),
        ({"key": None}, "software.upstreams[0].key"),
    ],
)
def test_a_wrong_upstream_is_refused_with_its_place(
    site: Callable[..., Path], values: dict[str, Any], expected: str
) -> None:
    right = {"name": "vendor", "url": "http://host/x", "key": "k.asc", "fingerprint": "AB" * 20}
    path = site([right | values])
    with pytest.raises(SiteInvalidError) as error:
        load_site("no-overlay", site_file=path, root=path.parents[2])
    assert expected in str(error.value)


def test_names_of_upstreams_differ_and_fingerprints_may_have_blanks(site: Callable[..., Path]) -> None:
    right = {"name": "vendor", "url": "http://host/x", "key": "k.asc", "fingerprint": " ".join(["abcd"] * 10)}
    path = site([right])
    found = load_site("no-overlay", site_file=path, root=path.parents[2])
    assert found.software.upstreams[0].fingerprint == "ABCD" * 10
    assert found.software.upstreams[0].key == path.parents[2] / "k.asc"
    path = site([right, right])
    with pytest.raises(
        SiteInvalidError, match=r"software.upstreams\[1\].name: upstream vendor is already used by upstream 1"
    ):
        load_site("no-overlay", site_file=path, root=path.parents[2])


def test_packages_follow_the_site(site: Callable[..., Path], tmp_path: Path) -> None:
    """Group variables of the environment count, and roles that the site does not run ask for nothing."""
    path = site([])
    paths = EnvPaths(tmp_path, "sim")
    found = load_site("no-overlay", site_file=path, root=tmp_path)
    with pytest.raises(MirrorError, match="Expected: the repositories to copy from"):
        plan(found, paths)
    assert plan(found, paths, build=False).needs[0].packages["slurmd"] == ""
    group = tmp_path / "inventories/sim/group_vars/nodes.yml"
    group.parent.mkdir()
    group.write_text('slurm_node_packages: {slurmd: "23.11-1"}\n')
    packages = plan(found, paths, ("6.1.0-40-amd64",), build=False).needs[0].packages
    assert packages["slurmd"] == "23.11-1"
    assert "munge" not in packages
    assert packages["linux-headers-6.1.0-40-amd64"] == ""
    path = site([], handover={"kind": "file", "path": "ready.txt"})
    found = load_site("no-overlay", site_file=path, root=tmp_path)
    assert "slurmd" not in plan(found, paths, build=False).needs[0].packages


def test_a_mirror_copies_from_the_upstreams_of_its_system(site: Callable[..., Path], tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    apt, rpm, both = (
        {"name": name, "url": "http://host/x", "key": "k.asc", "fingerprint": "AB" * 20, "systems": systems}
        for name, systems in (("apt", ["debian12"]), ("rpm", ["el9"]), ("both", []))
    )
    path = site([apt, rpm, both])
    found = load_site("no-overlay", site_file=path, root=tmp_path)
    assert [item.name for item in plan(found, paths).upstreams] == ["apt", "both"]
    path = site([rpm])
    found = load_site("no-overlay", site_file=path, root=tmp_path)
    with pytest.raises(MirrorError, match=r"Actual: none for debian12\. Declare each"):
        plan(found, paths)


def test_an_upstream_of_a_system_that_no_version_set_has_is_refused(site: Callable[..., Path], tmp_path: Path) -> None:
    """A typing error would drop the upstream in silence."""
    item = {"name": "cuda", "url": "http://host/x", "key": "k.asc", "fingerprint": "AB" * 20}
    path = site([item | {"systems": ["ubuntu24.04", "el9"]}])
    with pytest.raises(SiteInvalidError) as caught:
        load_site("no-overlay", site_file=path, root=tmp_path)
    [problem] = caught.value.problems
    assert "software.upstreams[0].systems: no version set is for ubuntu24.04 - Expected: some of " in str(problem)
    assert "ubuntu2204, ubuntu2404" in str(problem).replace(" and ", ", ")


def test_keys_to_declare_are_said_until_the_site_declares_them(site: Callable[..., Path], tmp_path: Path) -> None:
    """One key signs the mirrors of both systems: each repository is judged by its own file."""
    own, vendor = "1" * 40, "AB" * 20
    node = [{"name": "rocky", "nodes": ["node03"], "set": "hgx-r580-el9"}]
    path = site([{"name": "vendor", "url": "http://host/x", "key": "k.asc", "fingerprint": vendor}])
    document = yaml.safe_load(path.read_text())
    del document["software"]["mirror"]
    rpm: dict[str, Any] = {"name": "el9", "kind": "rpm", "url": "http://m/el9", "key": "el9.asc", "fingerprint": own}
    apt = rpm | {"name": "deb", "kind": "apt", "key": "deb.asc"}
    document["software"] |= {"groups": node, "repositories": [apt, rpm]}

    def notes() -> list[str]:
        path.write_text(yaml.safe_dump(document))
        found = only(load_site("no-overlay", site_file=path, root=tmp_path), "hgx-r580-el9")
        asked = order(tmp_path, *found.software.upstreams, system="el9")
        return mirror._notes(found, asked, Built([], [], changed=True, signed_by=own), check=False)

    said = f"Declare `package_fingerprints: [{vendor}]` beside `fingerprint: {own}` in software.repositories."
    assert [note for note in notes() if note.endswith(said)]
    assert [note for note in notes() if note.startswith(f"Nodes trust {tmp_path}/el9.asc (software.repositories)")]
    rpm["package_fingerprints"] = [vendor]
    assert not [note for note in notes() if "package_fingerprints" in note]


def test_one_list_for_platforms_that_need_the_same(site: Callable[..., Path], tmp_path: Path) -> None:
    path = site([])
    document = yaml.safe_load(path.read_text())
    document["racks"][0]["nodes"][1]["platform"] = "dgx_h200"
    path.write_text(yaml.safe_dump(document))
    found = load_site("no-overlay", site_file=path, root=tmp_path)
    assert [need.platforms for need in plan(found, EnvPaths(tmp_path, "sim"), build=False).needs] == [
        ("dgx_h100", "dgx_h200")
    ]


def test_every_line_of_a_tool_is_shown_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    step = mirror._steps(verbose=False, clock=lambda: now[0])
    step("Get:1 a")
    now[0] = 31.0
    step("Get:2 b")
    step("Get:3 c")
    assert capsys.readouterr().err.split("\n") == ["Get:2 b", ""]
    mirror._steps(verbose=True)("Get:4 d")
    assert capsys.readouterr().err == "Get:4 d\n"
