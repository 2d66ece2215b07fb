"""Building releases: the same state gives the same bytes, a change gives another release, secrets are sealed."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from rackready.drivers.release import code, sealing
from rackready.drivers.release.build import Builder, Built, build
from rackready.drivers.release.document import canonical
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob, Objects
from tests.unit.release.world import NODES, SECRET, Index, host_key, loaded, pin_keys, write_site, write_vars


def built(root: Path) -> Built:
    return build(*loaded(root), NODES)


def digests(found: Built) -> dict[str, str]:
    return {node: release.blob.sha256 for node, release in found.releases.items()}


def variables(root: Path, found: Built, node: str) -> dict[str, object]:
    """Return the variables as the node opens them."""
    _, paths = loaded(root)
    release = found.releases[node]
    data = found.objects.get(Blob(**release.document["variables"]))
    key = sealing.node_key(sealing.master_key(paths), node, release.machine)
    opened: dict[str, object] = json.loads(sealing.opened(key, node, data))
    return opened


def test_a_second_build_makes_no_new_object(root: Path, index: Index) -> None:
    first, second = built(root), built(root)
    assert digests(first) == digests(second)
    assert len(first.objects.new) == len(second.objects.kept)
    assert (len(first.objects.kept), len(second.objects.new)) == (0, 0)
    assert len(index.asked) == 1, "wheels that are there are not fetched again"


def test_what_nodes_share_is_made_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    archive = code.archive
    monkeypatch.setattr(code, "archive", lambda: packed.append(1) or archive())
    found = built(root)
    shared = {
        (r.document["code"]["sha256"], canonical({"wheels": r.document["wheels"]})) for r in found.releases.values()
    }
    assert (len(packed), len(shared), len(set(digests(found).values()))) == (1, 1, 4)


def test_two_folders_give_the_same_release(tmp_path: Path, index: Index) -> None:
    del index
    master = b"m" * 32
    out = []
    for name in ("one", "two"):
        folder = tmp_path / name
        handover = {"kind": "slurm", "controller": "192.0.2.9", "private_key": "/keys/slurm"}
        write_site(folder, handover=handover)
        pin_keys(folder)
        write_vars(folder, "group_vars/nodes.yml", f"base_mirror_key: {folder}/inventories/sim/mirror.asc\n")
        (folder / ".rackready/sim/pull.key").write_bytes(master)
        (folder / ".rackready/sim/pull.key").chmod(0o600)
        out.append(built(folder))
    assert digests(out[0]) == digests(out[1])
    assert out[0].objects.new == out[1].objects.new


def test_no_secret_of_group_vars_can_be_read_in_an_object(root: Path) -> None:
    write_vars(root, "group_vars/nodes.yml", f"my_token: {SECRET}\n")
    write_vars(root, "host_vars/node02.yml", f"my_password: {SECRET}\n")
    found = built(root)
    for path in (root / ".rackready/sim/release").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    assert variables(root, found, "node02")["group_vars"] == [["nodes.yml", f"my_token: {SECRET}\n"]]
    assert variables(root, found, "node02")["host_vars"] == [["node02.yml", f"my_password: {SECRET}\n"]]
    assert variables(root, found, "node01")["host_vars"] == []


def test_a_changed_value_is_another_release_of_the_nodes_that_it_is_about(root: Path) -> None:
    before = digests(built(root))
    write_vars(root, "host_vars/node02.yml", "base_ntp_servers: [192.0.2.3]\n")
    after = digests(built(root))
    assert [node for node in NODES if before[node] != after[node]] == ["node02"]


def test_another_machine_of_that_name_has_another_key(root: Path) -> None:
    before = built(root)
    site, paths = loaded(root)
    known = paths.known_hosts.read_text(encoding="utf-8")
    paths.known_hosts.write_text(known.replace(host_key(1), host_key(9)), encoding="utf-8")
    after = build(site, paths, NODES)
    assert before.releases["node01"].machine != after.releases["node01"].machine
    old = sealing.node_key(sealing.master_key(paths), "node01", before.releases["node01"].machine)
    data = after.objects.get(Blob(**after.releases["node01"].document["variables"]))
    with pytest.raises(
        sealing.SealError, match="node01: sealed variables - Expected: sealed with the key of this node"
    ):
        sealing.opened(old, "node01", data)


def test_a_node_without_pinned_key_has_no_release_and_the_others_do(root: Path) -> None:
    _, paths = loaded(root)
    lines = paths.known_hosts.read_text(encoding="utf-8").splitlines()
    paths.known_hosts.write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    found = built(root)
    assert sorted(found.releases) == NODES[1:]
    assert str(found.refused["node01"]).startswith(
        f"node01 192.0.2.11:22: SSH host key not pinned, no login was tried - Expected: its key in {paths.known_hosts} "
        "Actual: none. If rackready never logged in there"
    )


def test_a_site_that_pushes_has_no_release(root: Path) -> None:
    write_site(root, pull=None)
    with pytest.raises(ReleaseError) as refused:
        built(root)
    assert str(refused.value) == (
        "release build - Expected: pull in the site file Actual: none. "
        "Add it (docs/howto/pull.md): without it, the controller pushes."
    )


@pytest.mark.parametrize(
    ("changes", "python", "wheel"),
    [
        ({"set": "hgx-r580-debian12"}, "3.11", "3.11-x86_64"),
        ({"set": "hgx-r580-ubuntu2404"}, "3.12", "3.12-x86_64"),
        ({"set": "hgx-r580-ubuntu2204"}, "3.13", "3.13-x86_64"),
        ({"set": "hgx-r580-el9"}, "3.12", "3.12-x86_64"),
    ],
)
def test_each_system_gets_wheels_for_its_python(root: Path, changes: dict[str, str], python: str, wheel: str) -> None:
    named = {} if changes["set"].endswith(("debian12", "ubuntu2404")) else {"python": python}
    mirror = {"url": "https://mirror.example.com/cuda", "suite": "/", "key": "inventories/sim/mirror.asc"}
    write_site(root, software={**changes, "mirror": mirror}, pull={"url": "http://192.0.2.1:8480", **named})
    found = built(root)
    assert {release.document["python"] for release in found.releases.values()} == {python}
    assert [path.stem for path in (root / ".rackready/sim/wheels").iterdir()] == [wheel]


def test_the_document_names_every_object(root: Path) -> None:
    found = built(root)
    release = found.releases["node01"]
    assert found.objects.get(release.blob) == canonical(release.document)
    assert sorted(release.document) == sorted(
        ["version", "node", "code", "wheels", "files", "variables", "ansible_core", "python"]
    )
    assert release.document["ansible_core"].startswith("2.19.")
    names = [release.document[key]["sha256"] for key in ("code", "variables")]
    names += [item["sha256"] for key in ("wheels", "files") for item in release.document[key]]
    assert all((found.objects.folder / name).stat().st_mode & 0o777 == 0o444 for name in names)


def test_variables_of_an_order_open_on_their_node_alone(root: Path) -> None:
    site, paths = loaded(root)
    builder = Builder(site, paths)
    blob = builder.sealed("node01", {"rackready_tokens": {"node01": 7}, "my_token": SECRET})
    data = builder.objects.get(blob)
    assert SECRET.encode() not in data
    assert json.loads(sealing.opened(builder.node_key("node01"), "node01", data))["my_token"] == SECRET
    with pytest.raises(sealing.SealError):
        sealing.opened(builder.node_key("node02"), "node02", data)
    with pytest.raises(sealing.SealError):
        sealing.opened(builder.node_key("node01"), "node02", data)


def test_the_archive_has_the_layout_of_a_checkout_and_no_tests() -> None:
    data = code.archive()
    assert data == code.archive()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names == sorted(set(names))
    assert {"ansible.cfg", "playbooks/install.yml", "playbooks/group_vars/nodes.yml", "src/rackready/__init__.py"} <= {
        *names
    }
    assert {name.split("/")[0] for name in names} == {"ansible.cfg", "playbooks", "plugins", "roles", "src"}
    assert not [name for name in names if {"molecule", "tests", "__pycache__"} & {*name.split("/")}]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.isreg()) for m in members} == {(0, 0, 0, "", True)}
    assert {member.mode for member in members} <= {0o644, 0o755}


def test_a_damaged_object_is_refused_and_the_next_build_mends_it(root: Path) -> None:
    found = built(root)
    blob = found.releases["node01"].blob
    path = found.objects.path(blob.sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"node01", b"node02"))
    with pytest.raises(ReleaseError) as refused:
        Objects(found.objects.folder).get(blob)
    assert str(refused.value).startswith(
        f"{path}: object of a release - Expected: {blob.size} bytes with SHA-256 {blob.sha256[:12]} Actual: SHA-256 "
    )
    assert built(root).objects.new == {blob.sha256}
    assert Objects(found.objects.folder).whole(blob)


def test_an_installed_package_is_packed_as_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/rackready"
    for name in (
        *("__init__.py", "drivers/ansible_worker.py", "shipped/ansible.cfg", "shipped/playbooks/install.yml"),
        *("shipped/roles/base/tasks/main.yml", "shipped/roles/base/molecule/default/molecule.yml"),
        *("shipped/plugins/filter/x.py", "shipped/plugins/filter/x.py~", "shipped/src/rackready/ondevice/a.py"),
        *("shipped/docs/concepts.md", "shipped/pyproject.toml", "__pycache__/__init__.cpython-311.pyc"),
    ):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    monkeypatch.setattr(code, "_PACKAGE", package)
    monkeypatch.setattr(code, "shipped", lambda: package / "shipped")
    with tarfile.open(fileobj=io.BytesIO(code.archive())) as tar:
        assert tar.getnames() == [
            "ansible.cfg",
            "playbooks/install.yml",
            "plugins/filter/x.py",
            "roles/base/tasks/main.yml",
            "src/rackready/__init__.py",
            "src/rackready/drivers/ansible_worker.py",
        ]
