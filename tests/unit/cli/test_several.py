"""Commands on a site with several schedulers: each shows a node's own, and works on the nodes of one part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.hostkey_accept import places
from rackready.drivers.scheduler.slurm_files import Cluster
from rackready.handover import slurm_apply
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.cli.test_slurm import PARTS, Controller
from tests.unit.design.several_sites import BOTH, FILE, KUBERNETES, SLURM, document, part, several

Call = Callable[..., tuple[int, str, str]]
FILES = SLURM | {"files": {"folder": "/etc/slurm"}}
HERE = "inventories/sim/site.yml"


@pytest.fixture
def write(tmp_path: Path, call: Call) -> Callable[..., None]:
    """Return a function that gives the site its parts. Every node is certified."""
    del call

    def written(*parts: dict[str, Any]) -> None:
        (tmp_path / HERE).write_text(yaml.safe_dump(document(*parts)), encoding="utf-8")

    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        for number in range(1, 5):
            ledger.set_state(f"node0{number}", NodeState.CERTIFIED, "", phase="", campaign="c")
    written(part("node[01-02]", FILES), BOTH[1])
    return written


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    made = Controller()

    @contextmanager
    def connected(*_: object) -> Iterator[tuple[Controller, None]]:
        yield made, None

    monkeypatch.setattr(slurm_apply, "controller", connected)
    monkeypatch.setattr(slurm_apply, "read_parts", lambda _site, _remote, nodes: dict.fromkeys(nodes, PARTS))
    return made


@pytest.mark.usefixtures("write")
def test_slurms_files_name_the_nodes_of_slurm_only(call: Call, controller: Controller) -> None:
    code, out, _ = call("slurm", "diff")
    assert code == 1
    assert "+NodeName=node01 " in out
    assert "+NodeName=node02 " in out
    assert "node03" not in out
    code, _, err = call("slurm", "apply")
    assert (code, err.splitlines()[-1]) == (
        0,
        "changed: gres.conf, rackready_gres.conf, rackready_nodes.conf, slurm.conf",
    )
    text = controller.now.files["rackready_nodes.conf"] + controller.now.files["rackready_gres.conf"]
    assert "PartitionName=gpu Nodes=node[01-02] Default=YES" in text
    assert "node03" not in text


@pytest.mark.usefixtures("write", "controller")
def test_nodes_of_another_scheduler_are_no_business_of_slurms_files(call: Call) -> None:
    code, _, err = call("slurm", "diff", "--limit", "node02,node03,node04")
    assert (code, err) == (
        2,
        "--limit - Expected: nodes of part slurm Actual: node03, node04. Slurm's files name only its own nodes.\n",
    )


def test_a_node_that_moved_to_kubernetes_is_named_while_its_line_is_there(
    call: Call, write: Callable[..., None], controller: Controller
) -> None:
    call("slurm", "apply")
    controller.now = Cluster(controller.now.files, "d", (22, 5), answers=True, known=frozenset({"node01", "node02"}))
    write(part("node01", FILES), part("node[02-04]", KUBERNETES))
    code, _, err = call("slurm", "diff")
    assert (code, err) == (
        0,
        (
            "node02: in Slurm's files, and no longer in part slurm of the site. Delete the line there when no job runs "
            "on it.\n"
        ),
    )


def test_one_of_two_clusters_is_named(call: Call, write: Callable[..., None], controller: Controller) -> None:
    del controller
    other = FILES | {"controller": "192.0.2.6"}
    write(part("node[01-02]", FILES, name="old"), part("node[03-04]", other, name="new"))
    code, _, err = call("slurm", "diff")
    assert (code, err) == (
        2,
        "--part - Expected: one of old, new Actual: none. Name one; run the command once for each.\n",
    )
    _, out, _ = call("slurm", "diff", "--part", "new")
    assert "+NodeName=node03 " in out
    assert "node01" not in out


def test_a_part_without_files_of_ours_is_refused(call: Call, write: Callable[..., None]) -> None:
    write(*BOTH)
    code, _, err = call("slurm", "diff")
    assert (code, err) == (
        2,
        (
            f"{HERE} - Expected: handover.files, which says where Slurm's files lie Actual: none. Add it "
            "(docs/howto/slurm.md), or go on writing the files yourself.\n"
        ),
    )
    write(part("node[01-02]", FILE), BOTH[1])
    code, _, err = call("slurm", "diff")
    assert (code, err) == (
        2,
        (
            f"{HERE} - Expected: a part of kind slurm in handover.parts Actual: file (file), kubernetes (kubernetes). "
            "See docs/howto/two-schedulers.md.\n"
        ),
    )


def test_values_for_kubernetes_are_those_of_its_nodes(call: Call, write: Callable[..., None], tmp_path: Path) -> None:
    raw = document(part("node[01-02]", SLURM), BOTH[1])
    for node in raw["racks"][0]["nodes"][:2]:
        node["platform"] = "dgx_h200"
    (tmp_path / HERE).write_text(yaml.safe_dump(raw), encoding="utf-8")
    del write
    assert call("export", "kubernetes", "--out", str(tmp_path / "out"))[0] == 0
    text = (tmp_path / "out/kueue.yaml").read_text(encoding="utf-8")
    assert "dgx_h100" in text.replace("-", "_")
    assert "h200" not in text


@pytest.mark.usefixtures("write")
@pytest.mark.parametrize(
    ("file", "mixed"),
    [
        ("group_vars/part_slurm/mig.yml", False),
        ("host_vars/node01.yml", False),
        ("group_vars/part_kubernetes.yml", True),
        ("group_vars/platform_dgx_h100/mig.yml", True),
        ("host_vars/node04.yml", True),
        ("group_vars/all.yml", True),
    ],
)
def test_a_mig_layout_of_other_nodes_says_nothing_about_kubernetes(
    call: Call,
    tmp_path: Path,
    file: str,
    mixed: bool,  # noqa: FBT001 - expected
) -> None:
    path = tmp_path / "inventories/sim" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mig_layout: all-1g.10gb\n", encoding="utf-8")
    assert call("export", "kubernetes", "--out", str(tmp_path / "out"))[0] == 0
    assert ("strategy: mixed" in (tmp_path / "out/gpu-operator-values.yaml").read_text(encoding="utf-8")) is mixed


def test_values_for_one_of_two_clusters_say_which(call: Call, write: Callable[..., None], tmp_path: Path) -> None:
    write(part("node[01-02]", KUBERNETES | {"context": "b"}, name="lab"), part("node[03-04]", KUBERNETES, name="prod"))
    out = str(tmp_path / "out")
    code, _, err = call("export", "kubernetes", "--out", out)
    assert (code, err) == (
        2,
        "--part - Expected: one of lab, prod Actual: none. Name one; run the command once for each.\n",
    )
    assert call("export", "kubernetes", "--out", out, "--part", "lab")[0] == 0
    first = (tmp_path / "out/kueue.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# Written by `rackready export kubernetes --env sim --part lab`. Do not edit: run it again."


@pytest.mark.usefixtures("write")
def test_status_shows_each_nodes_scheduler(call: Call) -> None:
    code, out, _ = call("status", "--no-scheduler")
    assert code == 0
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert [(row[0], row[-1]) for row in cells] == [
        ("node01", "slurm (slurm 192.0.2.5)"),
        ("node02", "slurm (slurm 192.0.2.5)"),
        ("node03", "kubernetes (kubernetes gpu)"),
        ("node04", "kubernetes (kubernetes gpu)"),
    ]
    found = json.loads(call("status", "--no-scheduler", "--output", "json")[1])
    assert [(node["scheduler"], node["part"]) for node in found["nodes"]] == [
        *[("slurm 192.0.2.5", "slurm")] * 2,
        *[("kubernetes gpu", "kubernetes")] * 2,
    ]


def test_status_of_a_site_with_one_scheduler_has_no_column_for_it(call: Call) -> None:
    _, out, _ = call("status", "--no-scheduler")
    assert "scheduler" not in out
    found = json.loads(call("status", "--no-scheduler", "--output", "json")[1])
    assert {(node["scheduler"], node["part"]) for node in found["nodes"]} == {("slurm 192.0.2.5", "")}


@pytest.mark.usefixtures("write")
def test_metrics_and_targets_tell_the_scheduler(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("export", "metrics")
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("rackready_node_scheduler_info{")]
    assert [('scheduler="slurm"' in line, 'part="kubernetes"' in line) for line in lines] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
    assert call("export", "prometheus", "--out", str(tmp_path / "out"))[0] == 0
    targets = json.loads((tmp_path / "out/targets/node.json").read_text(encoding="utf-8"))
    assert [item["labels"]["part"] for item in targets] == ["slurm", "slurm", "kubernetes", "kubernetes"]


def test_the_keys_of_all_controllers_are_accepted_by_one_name(tmp_path: Path) -> None:
    other = SLURM | {"controller": "192.0.2.6"}
    site = several(part("node[01-02]", SLURM, name="old"), part("node[03-04]", other, name="new"))
    found = places(site, EnvPaths(tmp_path, "sim"), ["scheduler"])
    assert [place.address for place in found] == ["192.0.2.5", "192.0.2.6"]
    assert [place.address for place in places(site, EnvPaths(tmp_path, "sim"), ["node01"])] == ["192.0.2.11"]
