"""The filters of role host_roce, and the module that writes a binary key."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


filters = load("plugins/filter/rackready_fabric.py")
readings = load("plugins/filter/rackready_roce.py")
IFACES = {
    name: {
        "host_roce_interfaces": [
            {"rail": rail, "netdev": f"e{rail}", "address": f"192.168.{rail}.{10 + k}/24"} for rail in (1, 2)
        ]
    }
    for k, name in enumerate("abcd", 1)
}


@pytest.mark.parametrize(
    ("node", "hosts", "count", "peers"),
    [
        ("a", ["d", "b", "a", "c"], 8, "bcd"),
        ("c", ["a", "b", "c", "d"], 2, "da"),
        ("d", ["a", "d"], 8, "a"),
        ("a", ["a"], 8, ""),
    ],
)
def test_peers_are_the_next_hosts_in_a_ring(node: str, hosts: list[str], count: int, peers: str) -> None:
    request = filters.rail_request(
        IFACES[node]["host_roce_interfaces"], node, {"hosts": hosts, "known": []}, IFACES, 9000, count
    )
    assert [[peer["node"] for peer in rail["peers"]] for rail in request["rails"]] == [list(peers)] * 2
    assert request["mtu"] == 9000
    if peers:
        assert request["rails"][1]["peers"][0]["address"] == IFACES[peers[0]]["host_roce_interfaces"][1][
            "address"
        ].removesuffix("/24")


def test_nodes_of_another_tenant_are_no_peers() -> None:
    owners = {"a": "research", "b": "product", "c": "research"}
    hosts = {
        name: {
            "host_roce_interfaces": [
                {**own, **({"tenant": owners[name]} if name in owners else {})} for own in found["host_roce_interfaces"]
            ]
        }
        for name, found in IFACES.items()
    }
    play = {"hosts": ["a", "b", "d"], "known": ["c"]}
    for node, peers in (("a", ["c"]), ("b", []), ("d", [])):
        request = filters.rail_request(hosts[node]["host_roce_interfaces"], node, play, hosts, 9000, 8)
        assert [[peer["node"] for peer in rail["peers"]] for rail in request["rails"]] == [peers] * 2


@pytest.mark.parametrize(
    ("hosts", "known", "peers"),
    [(["a"], ["c", "b"], "bc"), (["a"], ["a", "gone"], ""), (["a", "d"], ["b"], "d")],
)
def test_a_node_alone_in_the_play_is_proven_against_nodes_known_to_be_up(
    hosts: list[str], known: list[str], peers: str
) -> None:
    request = filters.rail_request(
        IFACES["a"]["host_roce_interfaces"], "a", {"hosts": hosts, "known": known}, IFACES, 9000, 8
    )
    assert [[peer["node"] for peer in rail["peers"]] for rail in request["rails"]] == [list(peers)] * 2


def test_known_nodes_stand_in_on_the_rails_that_the_play_lacks() -> None:
    narrow = {"host_roce_interfaces": [{"rail": 1, "netdev": "e1", "address": "192.168.1.99/24"}]}
    request = filters.rail_request(
        IFACES["a"]["host_roce_interfaces"],
        "a",
        {"hosts": ["a", "n"], "known": ["b"]},
        {**IFACES, "n": narrow},
        9000,
        8,
    )
    assert [[peer["node"] for peer in rail["peers"]] for rail in request["rails"]] == [["n"], ["b"]]


class Counting(dict[str, object]):
    """Variables of hosts, and who was asked for them."""

    def __init__(self, known: dict[str, object]) -> None:
        super().__init__(known)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> object:
        self.asked.append(name)
        return super().__getitem__(name)


@pytest.mark.parametrize("known", [False, True])
def test_no_more_hosts_are_looked_up_than_there_are_peers(known: bool) -> None:  # noqa: FBT001 - table
    names = [f"n{number:03}" for number in range(128)]
    hostvars = Counting(dict.fromkeys(names, IFACES["a"]))
    play = {"hosts": names[:1], "known": names} if known else {"hosts": names, "known": []}
    request = filters.rail_request(IFACES["a"]["host_roce_interfaces"], "n000", play, hostvars, 9000, 8)
    assert [[peer["node"] for peer in rail["peers"]] for rail in request["rails"]] == [names[1:9]] * 2
    assert hostvars.asked == names[1:9] * 2


def test_unmeasured_rails_come_from_the_document() -> None:
    text = "rail 1: no other node in this run to reach"
    assert readings.rails_unmeasured({"stdout": json.dumps({"unmeasured": [text]})}) == [text]
    assert readings.rails_unmeasured({"stdout": "{cut"}) == []


def test_words_name_interface_part_and_both_sides() -> None:
    problem = {"what": "PFC priorities", "expected": "3", "actual": "none"}
    result = {
        "stdout": json.dumps(
            {
                "interfaces": [
                    {"netdev": "enp24s0np0", "problems": [problem], "state": {}},
                    {"netdev": "x", "problems": [], "state": {}},
                ]
            }
        )
    }
    assert readings.roce_words(result, "expected") == "enp24s0np0 PFC priorities 3"
    assert readings.roce_words(result, "actual") == "enp24s0np0 PFC priorities none"
    assert readings.roce_bad(result) == ["enp24s0np0"]


@pytest.mark.parametrize(
    "result", [{"stdout": "", "stderr": "python3: not found\n"}, {"stdout": "{cut", "stderr": "python3: not found\n"}]
)
def test_an_unreadable_answer_is_said_and_never_good(result: dict[str, str]) -> None:
    assert readings.roce_words(result, "expected") == "a reading of the interfaces"
    assert readings.roce_words(result, "actual") == "python3: not found"
    assert readings.roce_bad(result) == []


def test_what_differs_is_said_a_setting_each() -> None:
    document = {
        "interfaces": [
            {
                "netdev": "e1",
                "problems": [
                    {"what": "MTU", "expected": 9000, "actual": 1500},
                    {"what": "trust", "expected": "dscp", "actual": "pcp"},
                ],
            },
            {"netdev": "e2", "problems": []},
        ]
    }
    assert readings.roce_drift({"stdout": json.dumps(document)}) == [
        {"kind": "nic", "name": "e1 MTU", "expected": "9000", "actual": "1500"},
        {"kind": "nic", "name": "e1 trust", "expected": "dscp", "actual": "pcp"},
    ]
    assert readings.roce_drift({"stdout": "Traceback"}) == []


def test_units_that_do_not_start_at_boot_are_named() -> None:
    assert readings.units_drift(["a", "b"], ["enabled", "disabled"]) == [
        {"kind": "unit", "name": "b", "expected": "enabled", "actual": "disabled"}
    ]
    assert readings.units_drift(["a", "b"], ["enabled", "enabled"]) == []
    assert [item["actual"] for item in readings.units_drift(["a", "b"], [])] == ["not enabled"] * 2


@pytest.mark.parametrize("settings", [{}, {"NCCL_IB_TIMEOUT": 22}])
def test_the_file_of_nccl_becomes_roots_only_for_settings_of_the_site(settings: dict[str, int]) -> None:
    text = (ROOT / "roles/host_roce/tasks/programs.yml").read_text(encoding="utf-8")
    [block] = [
        task["ansible.builtin.blockinfile"] for task in yaml.safe_load(text) if "ansible.builtin.blockinfile" in task
    ]
    templar = Templar(loader=DataLoader(), variables={"host_roce_nccl": settings, "omit": "left alone"})
    given = [templar.template(trust_as_template(block[name])) for name in ("owner", "group", "mode")]
    assert given == (["root", "root", "0644"] if settings else ["left alone"] * 3)


@pytest.mark.parametrize(
    ("stack", "packages", "says"),
    [
        ("inbox", {"mlnx-tools": "25.10.0-1"}, "mlnx-tools 25.10.0-1"),
        ("doca", {}, "the mlnx-tools that DOCA-OFED brings"),
    ],
)
def test_the_nic_tools_are_the_stack_s_own(stack: str, packages: dict[str, str], says: str, tmp_path: Path) -> None:
    role = ROOT / "roles/host_roce"
    tasks = {task["name"]: task for task in yaml.safe_load((role / "tasks/install.yml").read_text(encoding="utf-8"))}
    own = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))
    known = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in own.items()}
    known |= {"host_roce_stack": stack, "host_roce_package_version": "25.10.0-1" if stack == "inbox" else ""}
    known["__host_roce_path"] = str(tmp_path)

    def said(text: str) -> object:
        return Templar(loader=DataLoader(), variables=known).template(trust_as_template(text))

    install = tasks["install | Install the exact version of the NIC tools and hold it"]
    assert said(install["rackready_packages"]["packages"]) == packages
    for name in ("mlnx_qos", "cma_roce_tos"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    shell = str(said(tasks["install | Look for the programs of the NIC tools"]["ansible.builtin.shell"]))
    found = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    known["__host_roce_lacks"] = {"stdout_lines": found.splitlines()}
    check = tasks["install | Check that the node has every program"]["rackready_check"]
    assert said(f"{{{{ {check['that']} }}}}") is False
    assert said(check["expected"]) == f"mlnx_qos, cma_roce_mode, cma_roce_tos of {says}"
    assert said(check["actual"]) == "cma_roce_mode missing"
    [inputs] = [
        task["rackready_check"]
        for task in yaml.safe_load((role / "tasks/preflight.yml").read_text(encoding="utf-8"))
        if task["name"] == "preflight | Check the role's inputs"
    ]
    assert [said(f"{{{{ {that} }}}}") for that in inputs["that"] if "version" in that] == [True]


def test_in_a_routed_fabric_peers_of_other_subnets_are_an_entry_of_their_own() -> None:
    routed = {
        name: {
            "host_roce_interfaces": [
                {"rail": 1, "netdev": "e1", "address": f"192.168.{subnet}.{k}/24", "gateway": f"192.168.{subnet}.1"}
            ]
        }
        for k, (name, subnet) in enumerate(zip("abcd", (1, 1, 9, 9), strict=True), 11)
    }
    mine, all_up, alone_up = (
        routed["a"]["host_roce_interfaces"],
        {"hosts": list("abcd"), "known": []},
        {"hosts": ["a"], "known": ["c"]},
    )
    made = filters.rail_request(mine, "a", all_up, routed, 9000, 8)
    near, far = made["rails"]
    assert [peer["node"] for peer in near["peers"]] == ["b"]
    assert [peer["node"] for peer in far["peers"]] == ["c", "d"]
    assert (far["far"], "far" in near) == (True, False)
    alone = filters.rail_request(mine, "a", alone_up, routed, 9000, 8)
    assert [(entry.get("far"), [peer["node"] for peer in entry["peers"]]) for entry in alone["rails"]] == [
        (True, ["c"])
    ]
