"""The reboot of the install phase: once for its reason, and still once if the run is killed in it. In order."""

from __future__ import annotations

from collections import Counter

import pytest

from rackready.campaign.reboot import PHASE
from tests.integration.project import Project

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODES = ("node01", "node02")
LIMIT = ("--limit", ",".join(NODES))


def want(project: Project, *options: str) -> None:
    """Set the kernel options of all nodes, as an operator does who overrides those of the profile."""
    folder = project.root / "inventories/sim/group_vars"
    folder.mkdir(exist_ok=True)
    (folder / "all.yml").write_text(f"base_kernel_options: [{', '.join(options)}]\n", encoding="utf-8")


def reboots(project: Project) -> Counter[str]:
    """Return node -> how often its system rebooted."""
    return Counter(row["node"] for row in project.power_log() if row["action"] == "reboot")


def said(project: Project, start: str) -> set[str]:
    """Return the nodes that have an event of the install phase with this beginning."""
    return {event.node for event in project.events() if event.phase == PHASE and event.text.startswith(start)}


def test_a_kernel_option_takes_one_reboot_and_is_verified_after_it(project: Project) -> None:
    want(project, "iommu=pt", "audit=0")
    assert project.json("provision", *LIMIT)[0] == 0, project.progress()[-2000:]
    code, document = project.json("install", *LIMIT)
    assert code == 0, project.progress()[-4000:]
    assert reboots(project) == dict.fromkeys(NODES, 1)
    assert said(project, "reboots: ") == said(project, "rebooted") == set(NODES)
    assert all("audit=0" in project.ssh(node, "cat /proc/cmdline").split() for node in NODES)
    assert document["changed"] == list(NODES)


def test_a_second_install_reboots_nobody(project: Project) -> None:
    code, document = project.json("install", *LIMIT)
    assert (code, document["changed"]) == (0, []), project.progress()[-2000:]
    assert reboots(project) == dict.fromkeys(NODES, 1)


def test_killed_at_the_reboot_the_next_run_observes_it_and_does_not_repeat_it(project: Project) -> None:
    want(project, "iommu=pt", "audit=0", "nosoftlockup")
    child = project.start("install", *LIMIT)
    seen = project.until(child, lambda event: event.text.startswith("reboots: "))
    assert seen is not None, project.progress()[-2000:]
    child.kill()
    child.wait()
    code, _ = project.json("install", *LIMIT)
    assert code == 0, project.progress()[-4000:]
    assert reboots(project) == dict.fromkeys(NODES, 2)
    assert seen.node in said(project, "an earlier run was interrupted at a reboot; it is observed before anything")
    assert all("nosoftlockup" in project.ssh(node, "cat /proc/cmdline").split() for node in NODES)
