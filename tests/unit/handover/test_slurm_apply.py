"""Slurm's files from the site and from what nodes report, beside what others wrote in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.site import load_site
from rackready.drivers.remote import Answer
from rackready.drivers.scheduler import slurm_files as driver
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_files import Cluster, SlurmController
from rackready.format_error import FormatError
from rackready.handover.slurm_apply import apply, candidate
from rackready.handover.slurm_parts import parts_of
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.site import NvlinkDomain, Site
from rackready.model.slurm_files import SlurmFiles
from rackready.render import slurm_files as render
from rackready.render.slurm_files import Gpu, NodeParts

ROOT = Path(__file__).resolve().parents[3]
WHERE = "Slurm controller 192.0.2.5:22"
THEIRS = (
    "ClusterName=x\nSelectType=select/cons_tres\nSlurmctldParameters=enable_configless\nPartitionName=admin State=UP\n"
)
PARTS = NodeParts(2, 56, 2, 2063500, tuple(Gpu(at, "0-55" if at < 4 else "56-111") for at in range(8)))


BASE: dict[str, Any] = {"release": (22, 5), "answers": True, "known": frozenset()}


def site_with(tmp_path: Path, files: dict[str, Any] | None = None, **more: Any) -> Site:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["handover"]["files"] = {"folder": "/etc/slurm"} | (files or {})
    place = tmp_path / "inventories/one"
    place.mkdir(parents=True, exist_ok=True)
    (place / "site.yml").write_text(yaml.safe_dump(document | more), encoding="utf-8")
    return load_site("one", root=tmp_path)


def cluster(files: dict[str, str] | None = None, **more: Any) -> Cluster:
    return Cluster({"slurm.conf": THEIRS} | (files or {}), "d", **(BASE | more))  # fmt: skip


def test_a_node_enters_beside_what_others_wrote(tmp_path: Path) -> None:
    found = candidate(site_with(tmp_path, {"topology": "tree"}), cluster(), WHERE, {"node01": PARTS})
    assert found.files["slurm.conf"] == f"{THEIRS}Include rackready_nodes.conf\n"
    assert found.files["gres.conf"] == "Include rackready_gres.conf\n"
    line = (
        "NodeName=node01 NodeAddr=192.0.2.11 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2063360 "
        "Gres=gpu:h100:8"
    )
    assert found.files["rackready_nodes.conf"] == (
        f"{render.HEAD}\nGresTypes=gpu\nTopologyPlugin=topology/tree\n"
        f'{line} State=DRAIN Reason="rackready: not handed over yet"\n'
        "PartitionName=gpu Nodes=node01 Default=YES MaxTime=INFINITE State=UP\n"
    )
    near = ["0-55"] * 4 + ["56-111"] * 4
    assert found.files["rackready_gres.conf"].splitlines()[1:] == [
        "NodeName=node01 AutoDetect=off",
        *(f"NodeName=node01 Name=gpu Type=h100 File=/dev/nvidia{at} Cores={near[at]}" for at in range(8)),
    ]
    assert found.files["topology.conf"] == f"{render.HEAD}\nSwitchName=su1 Nodes=node01\nSwitchName=top Switches=su1\n"
    # The state must not stay: slurmctld 22.05.8 drains the node anew at each restart.
    assert f"{line}\n" in found.settled["rackready_nodes.conf"]
    assert (found.reload, found.nodes) == ("restart", ("node01",))


def test_a_second_node_keeps_the_line_of_the_first_and_a_known_one_gets_no_state(tmp_path: Path) -> None:
    site = site_with(tmp_path)
    first = candidate(site, cluster(), WHERE, {"node01": PARTS})
    now = cluster(dict(first.settled), known=frozenset({"node01"}))
    assert candidate(site, now, WHERE, {"node01": PARTS}).files == {}
    second = candidate(site, now, WHERE, {"node02": PARTS})
    assert set(second.files) == {"rackready_nodes.conf", "rackready_gres.conf"}
    lines = second.files["rackready_nodes.conf"].splitlines()
    assert [line for line in lines if "node01 " in line and "State=DRAIN" in line] == []
    assert [line.split()[0] for line in lines if "State=DRAIN" in line] == ["NodeName=node02"]
    assert "PartitionName=gpu Nodes=node[01-02] Default=YES MaxTime=INFINITE State=UP" in lines
    off, first_gpu = second.files["rackready_gres.conf"].splitlines()[1:3]
    assert off == "NodeName=node[01-02] AutoDetect=off"
    assert first_gpu.startswith("NodeName=node[01-02] Name=gpu ")


def test_while_slurmctld_is_down_nodes_that_it_had_get_no_state(tmp_path: Path) -> None:
    # With it, the restart that brings slurmctld back would drain nodes in production.
    site = site_with(tmp_path)
    files = dict(candidate(site, cluster(), WHERE, {"node01": PARTS}).settled)
    found = candidate(site, cluster(files, answers=False), WHERE, {"node02": PARTS})
    lines = found.files["rackready_nodes.conf"].splitlines()
    assert [line.split()[0] for line in lines if "State=DRAIN" in line] == ["NodeName=node02"]
    assert found.reload == "restart"


@pytest.mark.parametrize(("release", "reload"), [((22, 5), "restart"), ((24, 5), "restart"), ((24, 11), "reconfigure")])
def test_only_a_release_that_takes_nodes_in_by_reconfigure_is_reconfigured(
    tmp_path: Path, release: tuple[int, int], reload: str
) -> None:
    site = site_with(tmp_path)
    now = cluster(dict(candidate(site, cluster(), WHERE, {"node01": PARTS}).settled), known=frozenset({"node01"}))
    assert candidate(site, replace(now, release=release), WHERE, {"node02": PARTS}).reload == reload
    assert candidate(site, replace(now, release=release, answers=False), WHERE, {"node02": PARTS}).reload == "restart"


CONFIGLESS = (
    "Slurm controller 192.0.2.5:22 slurm.conf: SlurmctldParameters - Expected: enable_configless: nodes fetch the "
    "files "
    "from the controller Actual: not set. Add it, or set handover.files.distribution to classic: rackready then writes "
    "the files on every node."
)


UNREAD = (
    WHERE
    + " slurm.conf: Include {} - Expected: a file NAME.conf beside slurm.conf Actual: no such file was read. Give "
    "it such a name there, and include it by that name: rackready must see what others set."
)


@pytest.mark.parametrize(
    ("files", "options", "text"),
    [
        ({"slurm.conf": "ClusterName=x\nSelectType=select/cons_tres\n"}, {}, CONFIGLESS),
        (
            {"slurm.conf": THEIRS + "NodeName=node[01-04] Sockets=2\n"},
            {},
            (
                f"{WHERE} slurm.conf: NodeName of node01 - Expected: only in rackready_nodes.conf Actual: defined by "
                f"somebody "
                "else. Remove their lines there: rackready writes them."
            ),
        ),
        (
            {"slurm.conf": THEIRS + "Include theirs.conf\n", "theirs.conf": "PartitionName=gpu Nodes=cpu1\n"},
            {},
            (
                f"{WHERE} slurm.conf: partition gpu - Expected: only in rackready_nodes.conf Actual: defined by "
                f"somebody "
                f"else. "
                "Give ours another name in handover.files.partitions, or remove that line."
            ),
        ),
        (
            {"slurm.conf": THEIRS + "NodeName \\\n = node01 CPUs=1\n"},
            {},
            (
                f"{WHERE} slurm.conf: NodeName of node01 - Expected: only in rackready_nodes.conf Actual: defined by "
                "somebody else. Remove their lines there: rackready writes them."
            ),
        ),
        (
            {"slurm.conf": THEIRS + "GresTypes = fpga\n"},
            {},
            f"{WHERE} slurm.conf: GresTypes - Expected: gpu among them Actual: fpga. Add gpu to it.",
        ),
        (
            {"slurm.conf": THEIRS + "Include cpu_nodes.inc\n"},
            {},
            UNREAD.format("cpu_nodes.inc"),
        ),
        (
            {"slurm.conf": THEIRS + "include theirs.conf\n", "theirs.conf": "INCLUDE /etc/slurm/cpu_nodes.conf\n"},
            {},
            UNREAD.format("/etc/slurm/cpu_nodes.conf"),
        ),
        (
            {"slurm.conf": THEIRS + "GresTypes=fpga\n"},
            {},
            f"{WHERE} slurm.conf: GresTypes - Expected: gpu among them Actual: fpga. Add gpu to it.",
        ),
        (
            {"slurm.conf": THEIRS + "SelectType=select/linear\n"},
            {},
            (
                f"{WHERE} slurm.conf: SelectType - Expected: select/cons_tres Actual: select/linear. Correct it: "
                f"only that "
                "plugin gives out GPUs."
            ),
        ),
        (
            {"slurm.conf": THEIRS + "TopologyPlugin=topology/3d_torus\n"},
            {"topology": "tree"},
            (
                f"{WHERE} slurm.conf: TopologyPlugin - Expected: topology/tree Actual: topology/3d_torus. Change it "
                f"when "
                f"no "
                "job runs (their records may be lost), or set handover.files.topology to none."
            ),
        ),
        (
            {"topology.conf": "SwitchName=s0 Nodes=cpu1\n"},
            {"topology": "tree"},
            (
                f"{WHERE} topology.conf: written by somebody else - Expected: none, or one that begins with "
                "'# Written by rackready' Actual: 'SwitchName=s0 Nodes=cpu1'. Remove it, or set "
                "handover.files.topology to "
                "none."
            ),
        ),
        (
            {"topology.yaml": "- topology: a\n"},
            {"topology": "tree"},
            (
                f"{WHERE} topology.yaml: Slurm ignores topology.conf beside it - Expected: absent Actual: there. "
                f"Remove "
                f"it, or "
                "set handover.files.topology to none."
            ),
        ),
        (
            {},
            {"topology": "block"},
            (
                f"{WHERE} topology: blocks - Expected: Slurm 24.05 or later Actual: 22.05. Set "
                f"handover.files.topology to "
                f"tree "
                "or none, or upgrade Slurm.\n"
                f"{WHERE} topology: blocks - Expected: every node of the cluster in an NVLink domain of the site "
                "Actual: node01 in none: no job would start there. Set handover.files.topology to tree or none. Nodes "
                "of the site's own can be named in nvlink_domains."
            ),
        ),
    ],
)
def test_what_cannot_stand_beside_ours_is_refused(
    tmp_path: Path, files: dict[str, str], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(SchedulerError) as caught:
        candidate(site_with(tmp_path, options), cluster(files), WHERE, {"node01": PARTS})
    assert str(caught.value) == text


def test_blocks_are_nvlink_domains_and_the_smallest_sets_the_size(tmp_path: Path) -> None:
    domains = [{"name": "nvl1", "nodes": ["node[01-03]"]}, {"name": "nvl2", "nodes": ["node04"]}]
    site = site_with(tmp_path, {"topology": "block"}).model_copy(
        update={"nvlink_domains": [NvlinkDomain.model_validate(item) for item in domains]}
    )
    assert render.block_text(site, ["node01", "node02", "node04"]) == (
        f"{render.HEAD}\nBlockName=nvl1 Nodes=node[01-02]\nBlockName=nvl2 Nodes=node04\nBlockSizes=1\n"
    )


def test_partitions_of_the_site_hold_their_nodes_and_one_without_nodes_stays(tmp_path: Path) -> None:
    partitions = [
        {"name": "train", "nodes": ["node[01-02]"], "default": True},
        {"name": "infer", "nodes": ["node04"], "max_time": "12:00:00"},
    ]
    found = candidate(site_with(tmp_path, {"partitions": partitions}), cluster(), WHERE, {"node02": PARTS})
    assert found.files["rackready_nodes.conf"].splitlines()[-2:] == [
        "PartitionName=train Nodes=node02 Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=infer MaxTime=12:00:00 State=UP",
    ]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"folder": "etc/slurm"}, "folder etc/slurm - Expected: a path from the root, e.g. /etc/slurm"),
        (
            {"folder": "/e", "partitions": [{"name": "a"}, {"name": "a"}]},
            "partition a - Expected: named once Actual: 2 times",
        ),
        (
            {"folder": "/e", "partitions": [{"name": "a", "default": True}, {"name": "b", "default": True}]},
            "default partitions - Expected: at most one Actual: a, b",
        ),
        ({"folder": "/e", "unit": "a; reboot"}, "String should match pattern"),
    ],
)
def test_a_wrong_setting_is_refused(document: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        SlurmFiles.model_validate(document)
    assert text in str(caught.value)


# --- the controller ---------------------------------------------------------------------------------------------------


class Runner:
    """Answers the program's requests in turn."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def run(self, node: str, argv: Any, *, stdin: str = "", timeout_s: float, cleaning: bool = False) -> Answer:  # noqa: ANN401
        del node, argv, stdin, timeout_s, cleaning
        return self.answers.pop(0)


def said(text: str, code: int = 0) -> Answer:
    return Answer(code, text, "no such program", 0.1)


def document(result: str, words: str) -> Answer:
    head = '"format": "rackready/slurm-files/v1", "complete": true, "kept": ""'
    return said(f'{{{head}, "result": "{result}", "words": {words}}}')


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            document("taken-back", '["slurmctld does not know n2", "with the old files slurmctld runs again"]'),
            (
                f"{WHERE}: /etc/slurm - Expected: slurmctld runs with the new files Actual: slurmctld does not know "
                f"n2; "
                f"with the "
                "old files slurmctld runs again. The old files are back. Read its log on the controller, correct the "
                "cause, "
                "run again."
            ),
        ),
        (
            document("refused", '["fatal: Duplicated NodeHostName n1 in config file"]'),
            (
                f"{WHERE}: /etc/slurm - Expected: slurmctld runs with the new files in a trial Actual: fatal: "
                f"Duplicated "
                "NodeHostName n1 in config file. Nothing was changed. Correct what it says, in slurm.conf or in the "
                "site "
                "file."
            ),
        ),
        (
            said("", 127),
            (
                f"{WHERE}: Slurm's files - Expected: an answer from the controller Actual: exit code 127: no such "
                f"program. "
                "Check that the host answers, has python3, and that handover.user is root there."
            ),
        ),
        (
            said('{"format": "rackready/slurm-files/v1"}'),
            (
                f"{WHERE}: Slurm's files - Expected: an answer from the controller Actual: an incomplete answer. Check "
                f"that the "
                "host answers, has python3, and that handover.user is root there."
            ),
        ),
    ],
)
def test_what_the_controller_could_not_do_is_said_in_full(answer: Answer, text: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        SlurmController(Runner(answer), WHERE, "/etc/slurm", "slurmctld.service").change({}, "d", "restart", [])
    assert str(caught.value) == text


class FakeController:
    """Takes changes; the second look shows the first change, with the nodes known."""

    where = WHERE

    def __init__(self, now: Cluster) -> None:
        self.now = now
        self.changes: list[tuple[list[str], str]] = []

    def look(self) -> Cluster:
        return self.now

    def change(self, files: dict[str, str], seen: str, reload: str, nodes: Any) -> str:  # noqa: ANN401
        del seen
        self.changes.append((sorted(files), reload))
        self.now = replace(self.now, files={**self.now.files, **files}, known=self.now.known | set(nodes))
        return "kept"


def test_a_new_node_begins_drained_and_its_state_leaves_the_file_without_a_reload(tmp_path: Path) -> None:
    fake: Any = FakeController(cluster())
    found = candidate(site_with(tmp_path), fake.look(), WHERE, {"node01": PARTS})
    assert apply(fake, found) == ["gres.conf", "rackready_gres.conf", "rackready_nodes.conf", "slurm.conf"]
    assert [change[1] for change in fake.changes] == ["restart", "none"]
    assert fake.changes[1][0] == ["rackready_nodes.conf"]
    assert "State=DRAIN" not in fake.now.files["rackready_nodes.conf"]
    assert apply(fake, candidate(site_with(tmp_path), fake.look(), WHERE, {"node01": PARTS})) == []


def test_a_node_without_known_parts_gets_no_line(tmp_path: Path) -> None:
    bad = NodeResult(Outcome.ERROR, "node02: no answer")
    found = candidate(site_with(tmp_path), cluster(), WHERE, {"node01": PARTS, "node02": bad})
    assert (found.nodes, dict(found.failed)) == (("node01",), {"node02": bad})


# --- what nodes report ------------------------------------------------------------------------------------------------

HEADING = "# comment\n# CPU,Core,Socket\n"
TWO = HEADING + "".join(f"{cpu},{cpu % 4},{cpu % 4 // 2}\n" for cpu in range(8))
"""Two sockets of two cores of two threads, numbered as x86 does."""
TOPO = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\t0-1,4-5\t0\t\tN/A\n"
    "GPU1\tNV18\t X \t2-3,6-7\t1\t\tN/A\n"
)


def report(*gpus: str) -> str:
    parts = "".join(f'<gpu id="00000000:{at}B:00.0">{text}</gpu>' for at, text in enumerate(gpus, 1))
    count = f"<driver_version>1</driver_version><attached_gpus>{len(gpus)}</attached_gpus>"
    return f"<nvidia_smi_log>{count}{parts}</nvidia_smi_log>"


def outputs(**more: str) -> dict[str, str]:
    smi = report("<minor_number>1</minor_number>", "<minor_number>0</minor_number>")
    return {"cores": TWO, "memory": "MemTotal:       2113036288 kB\n", "gpus": smi, "topology": TOPO} | more


def test_a_node_reports_sockets_memory_and_gpus_by_device_file() -> None:
    assert parts_of("n", outputs(), 2) == NodeParts(
        2, 2, 2, 2063512, (Gpu(1, "0-1", (-1, 18)), Gpu(0, "2-3", (18, -1)))
    )


def test_gpus_near_every_socket_and_without_nvlink_share_a_line(tmp_path: Path) -> None:
    plain = TOPO.replace("NV18", "SYS").replace("0-1,4-5", "N/A").replace("2-3,6-7", "0-7")
    in_order = report("<minor_number>0</minor_number>", "<minor_number>1</minor_number>")
    found = parts_of("n", outputs(topology=plain, gpus=in_order), 2)
    assert found.gpus == (Gpu(0), Gpu(1))
    assert render.gres_lines(site_with(tmp_path), "node01", found) == ("Name=gpu Type=h100 File=/dev/nvidia[0-1]",)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"cores": "0,0,0\n"}, "lscpu without its heading '# CPU,Core,Socket'"),
        ({"cores": HEADING}, "lscpu --parse=CPU,CORE,SOCKET names no CPU"),
        ({"cores": HEADING + "0,0,0\n0,0,0\n"}, "lscpu --parse=CPU,CORE,SOCKET names a CPU twice"),
        (
            {"cores": TWO.rsplit("\n", 2)[0] + "\n"},
            "sockets have unequal numbers of cores, or cores of threads: some CPUs are offline",
        ),
        ({"memory": ""}, "/proc/meminfo without MemTotal"),
        (
            {"gpus": report("<minor_number>0</minor_number>")},
            "1 GPUs in nvidia-smi -q, 2 in topo -m; its platform has 2",
        ),
        (
            {"gpus": report(*["<mig_mode><current_mig>Enabled</current_mig></mig_mode>"] * 2)},
            "MIG is on, whose slices rackready does not write; keep this node's lines by hand",
        ),
        ({"gpus": report("", "<minor_number>0</minor_number>")}, "n GPU 0 has no minor number"),
    ],
)
def test_a_node_that_is_not_understood_gets_no_line(more: dict[str, str], text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parts_of("n", outputs(**more), 2)
    assert str(caught.value) == text


def test_an_include_is_added_once() -> None:
    once = driver.with_include("a=b", "x.conf")
    assert once == "a=b\nInclude x.conf\n"
    assert driver.with_include(once, "x.conf") == once
    assert driver.with_include("INCLUDE \\\nx.conf\n", "x.conf") == "INCLUDE \\\nx.conf\n"
    assert driver.with_include("", "x.conf") == "Include x.conf\n"
    assert driver.with_include("#Include x.conf\n", "x.conf") == "#Include x.conf\nInclude x.conf\n"
