"""Variables of a release: those that Ansible gives the node on push, and nothing that should stay on the controller."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob, objects_of
from rackready.drivers.release.variables import KEY_VARIABLES, ON_NODE, Variables
from tests.unit.release.world import KEY, SECRET, loaded, write_site, write_vars

ROOT = Path(__file__).resolve().parents[3]
CONNECTION = ("host", "user", "port", "ssh_private_key_file", "ssh_common_args")


def of(root: Path, node: str = "node01") -> tuple[dict[str, Any], list[Blob]]:
    site, paths = loaded(root)
    return Variables(site, paths, objects_of(paths)).of(node)


def refusal(root: Path) -> str:
    with pytest.raises(ReleaseError) as refused:
        of(root)
    return str(refused.value)


def asked(inventory: Path, cwd: Path, **env: str) -> dict[str, Any]:
    """Return the variables of node01 as ansible-inventory gives them."""
    argv = [Path(sys.executable).parent / "ansible-inventory", "-i", str(inventory), "--host", "node01"]
    given = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "RACKREADY_ROOT": str(cwd),
        "PYTHONPATH": str(ROOT / "src"),
        **env,
    }
    done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, env=given, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def written(document: dict[str, Any], folder: Path) -> Path:
    """Write a static inventory of the variables, as a node does."""
    groups = {
        name: {"hosts": {document["node"]: {}}, "vars": variables} for name, variables in document["groups"].items()
    }
    folder.mkdir()
    (folder / "hosts.json").write_text(
        json.dumps({"all": {"hosts": {document["node"]: document["hostvars"]}, "children": groups}}), encoding="utf-8"
    )
    for kind in ("group_vars", "host_vars"):
        for name, text in document[kind]:
            path = folder / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return folder


def two_racks() -> list[dict[str, Any]]:
    nodes = {"template": "h100", "unit": {"first": 1, "step": 8}}

    def rack(number: int, names: str, first: int) -> dict[str, Any]:
        place = {"address": {"first": f"192.0.2.1{first}"}, "bmc": {"address": {"first": f"192.0.2.11{first}"}}}
        return {"name": f"rack{number:02}", "nodes": [{"name": names, "index": {"first": first}, **nodes, **place}]}

    return [rack(1, "node[01-02]", 1), rack(2, "node[03-04]", 3)]


def test_a_node_gets_what_ansible_gives_it_on_push(root: Path, tmp_path: Path) -> None:
    write_site(root, racks=two_racks())
    write_vars(root, "group_vars/all.yml", "mig_layout: all-disabled\nbase_shared: 1\n")
    write_vars(root, "group_vars/nodes/10-own.yml", "base_shared: 2\nbase_os: {{ 'x' }}\n".replace("{{ 'x' }}", "mine"))
    write_vars(root, "group_vars/platform_dgx_h100", "base_shared: 3\n")
    write_vars(root, "group_vars/rack_rack02.yml", f"other_rack: {SECRET}\n")
    write_vars(root, "group_vars/nodes.yml.bak", "left: over\n")
    write_vars(root, "host_vars/node01.json", '{"base_own": [1, "two"]}')
    write_vars(root, "host_vars/node010.yml", "not: mine\n")
    write_vars(root, "group_vars/nodes/readme.md", "notes")
    write_vars(root, "group_vars/nodes/old.yml~", "base_shared: 9")
    document, files = of(root)
    assert SECRET in json.dumps(of(root, "node03")[0])
    read = ["all.yml", "nodes/10-own.yml", "platform_dgx_h100"]
    assert [name for name, _ in document["group_vars"]] == read
    pushed = asked(root / "inventories/sim", root)
    pulled = asked(written(document, tmp_path / "node"), root, ANSIBLE_INVENTORY_ENABLED="ansible.builtin.yaml")
    connection = {key for key in pushed if key.startswith("ansible_")} - set(pulled)
    assert connection == {f"ansible_{name}" for name in CONNECTION}
    assert pushed.pop("base_mirror_key") == str(root / "inventories/sim/mirror.asc")
    assert pulled.pop("base_mirror_key") == f"{ON_NODE}/{files[0].sha256}"
    assert pulled == {key: value for key, value in pushed.items() if key not in connection}
    assert (pulled["base_shared"], pulled["base_os"], pulled["base_own"]) == (3, "mine", [1, "two"])
    assert len(pulled) > 60
    assert SECRET not in json.dumps(document), "another rack's variables stay on the controller"


def test_keys_of_repositories_are_files_of_the_release(root: Path) -> None:
    own = root / "inventories/sim/own.asc"
    own.write_text(KEY.replace("mDMEZ", "mDMEX"), encoding="utf-8")
    write_vars(root, "group_vars/nodes.yml", f'base_repositories:\n  - {{name: own, "key": "{own}", url: "x"}}\n')
    write_vars(root, "host_vars/node01.yml", f"base_mirror_key: '{own}'\nnote: '{own}.old'\n")
    document, files = of(root)
    blob = Blob.of(own.read_bytes())
    assert {item.sha256 for item in files} == {blob.sha256, Blob.of(KEY.encode()).sha256}
    place = f"{ON_NODE}/{blob.sha256}"
    assert document["group_vars"] == [
        ["nodes.yml", f'base_repositories:\n  - {{name: own, "key": "{place}", url: "x"}}\n']
    ]
    assert document["host_vars"] == [["node01.yml", f"base_mirror_key: '{place}'\nnote: '{own}.old'\n"]]
    _, paths = loaded(root)
    assert objects_of(paths).get(blob) == own.read_bytes()


def test_no_other_file_of_the_controller_leaves_it(root: Path) -> None:
    secret = write_vars(root, "secrets/munge", SECRET)
    write_vars(root, "group_vars/nodes.yml", f"slurm_node_munge_key_file: {secret}\nbase_list: [/etc/passwd]\n")
    document, files = of(root)
    assert document["group_vars"][0][1].startswith(f"slurm_node_munge_key_file: {secret}\n")
    assert [item.sha256 for item in files] == [Blob.of(KEY.encode()).sha256]


def test_a_key_that_is_no_public_key_is_refused(root: Path) -> None:
    secret = write_vars(root, "secrets/own", SECRET)
    write_vars(root, "group_vars/nodes.yml", f"base_mirror_key: {secret}\n")
    assert refusal(root) == (
        f"{secret}: key of a package repository - Expected: an OpenPGP public key, ASCII armoured Actual: another "
        "file. Correct the path in the site file or in group_vars."
    )
    _, paths = loaded(root)
    stored = objects_of(paths).folder.iterdir()
    assert not [path for path in stored if SECRET.encode() in path.read_bytes()]


def test_a_missing_key_is_refused(root: Path) -> None:
    (root / "inventories/sim/mirror.asc").unlink()
    assert "mirror.asc: key of a package repository" in refusal(root)
    assert "Actual: No such file or directory." in refusal(root)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('x: \'{{ lookup("env", "HOME") }}\'\n', "lookup"),
        ("x: '{{ hostvars[\"node02\"].y }}'\n", "hostvars"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6133\n", "$ANSIBLE_VAULT"),
        ("x: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n", "$ANSIBLE_VAULT"),
        ("x: '{{ now(utc=true) }}'\n", "now"),
        ("x: '{{ inventory_dir }}/keys'\n", "inventory_dir"),
        ("x: 'http://{{ ansible_host }}/'\n", "ansible_host"),
    ],
)
def test_what_the_node_would_read_otherwise_is_refused(root: Path, text: str, word: str) -> None:
    path = write_vars(root, "group_vars/nodes.yml", text)
    assert refusal(root) == (
        f"{path}: variables of nodes that pull - Expected: values that the file alone decides Actual: {word}. "
        "Write the value itself, or take the phase out of pull.phases."
    )


def test_bytes_that_are_no_text_are_refused(root: Path) -> None:
    path = write_vars(root, "group_vars/nodes.yml", "x: y\n")
    path.write_bytes(b"x: \xff\n")
    assert "Actual: bytes that are no UTF-8 (at 3). Write the value itself" in refusal(root)


def test_files_of_other_groups_are_not_judged(root: Path) -> None:
    write_vars(root, "group_vars/rack_rack02.yml", "x: '{{ now() }}'\n")
    assert of(root)[0]["group_vars"] == []


def test_every_file_of_the_controller_that_a_pulled_role_reads_is_known() -> None:
    """Roles say in their argument specs which variables name a file on the controller."""
    found = set()
    for phase in ("install", "optimize"):
        (play,) = yaml.safe_load((ROOT / f"playbooks/{phase}.yml").read_text(encoding="utf-8"))
        for role in play["roles"]:
            text = (ROOT / f"roles/{role['role']}/meta/argument_specs.yml").read_text(encoding="utf-8")
            found |= set(_controllers(yaml.safe_load(text)["argument_specs"]["main"].get("options", {}), ""))
    assert found == set(KEY_VARIABLES)


def _controllers(options: dict[str, Any], above: str) -> list[str]:
    out = []
    for name, option in options.items():
        if re.search(r"\bon the controller\b", str(option.get("description", ""))):
            out.append(f"{above}{name}")
        out += _controllers(option.get("options", {}), f"{above}{name}[].")
    return out
