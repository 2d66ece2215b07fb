"""A small example is rehearsed on this machine: killed once, then carried out, and nothing of it is left. In order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rackready.paths import EnvPaths
from rackready_sim import podman
from rackready_sim.plan import clone_id
from tests.integration.project import ROOT, Project
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ENV = "lab-4-nodes-rehearsal"
SITE = ("--site", str(ROOT / "inventories/examples/lab-4-nodes.yml"))
TWO = ("--limit", "node01,node02")
B200 = str(ROOT / "inventories/examples/b200-4su-roce.yml")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, image: None) -> Iterator[Project]:
    """A root without a rack; what a rehearsal leaves there is taken down."""
    del image
    made = Project(tmp_path_factory.mktemp("rehearse") / "clone")
    try:
        yield made
    finally:
        made.close()


def containers(clone: Project) -> list[str]:
    return [item.name for item in podman.containers(clone_id(clone.root))]


def test_dry_run_makes_nothing(clone: Project) -> None:
    code, found = clone.json("rehearse", *SITE, "--check")
    assert (code, found["environment"], containers(clone)) == (0, ENV, [])
    words = ("--stand-in", "dgx_b200=dgx_h100", "--stand-in", "switches=cumulus_nvue")
    code, found = clone.json("rehearse", "--site", B200, "--check", *words)
    assert (code, len(found["site"]["switches"])) == (0, 10)


def test_killed_rehearsal_ends_its_deploy_and_leaves_a_rack(clone: Project) -> None:
    paths = EnvPaths(clone.root, ENV)
    child = clone.start("rehearse", *SITE, *TWO, "--keep")
    until(lambda: paths.database.file.exists() or child.poll() is not None)
    assert child.poll() is None, clone.progress()[-4000:]
    child.kill()
    child.wait()
    until(lambda: clone.run("sim", "down", "--env", ENV)[0] == 0)
    assert (containers(clone), paths.state.exists()) == ([], False), "sim down refuses until the deploy has stopped"


def test_rehearsal_takes_two_nodes_to_production_and_leaves_only_its_reports(clone: Project) -> None:
    code, found = clone.json("rehearse", *SITE, *TWO)
    assert code == 0, clone.progress()[-4000:]
    assert found["covered"]["nodes"] == {"node01": "ready", "node02": "ready"}
    assert {"provision", "install", "fabric", "validate", "certify", "handover"} <= set(found["covered"]["phases"])
    assert "pair/fabric/performance/ib-write-bw" in found["covered"]["gates"]
    assert "gate cluster/fabric/stress/incast" in [note["what"] for note in found["not_covered"]]
    assert containers(clone) == []
    left = {path.name for path in (clone.root / ".rackready").iterdir()}
    assert left <= {".gitignore", "tools", "rehearsals", "sim.lock", "rehearse.lock"}
    assert not (clone.root / "inventories" / ENV).exists()
    assert len(list((clone.root / ".rackready/rehearsals" / ENV).iterdir())) == 3
