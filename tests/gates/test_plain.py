"""Documents of our scripts, made from outputs of a node's tools: the same facts, or an error per missing one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.base import Run
from rackready.gates.engine.registry import gate
from rackready.gates.plain.document_makers import made, recognised, slots
from rackready.gates.plain.nvidia import SERVICES
from rackready.gates.records.offline import Captured, evaluate, facts
from rackready.model.outcome import Finding, Outcome, Verdict
from tests.gates import plain_texts as printed
from tests.gates.gpu.test_pcie_path import PCIE_STEP, paths_of
from tests.gates.support import document

INVENTORY, PATH, VERSIONS = "node/gpu/sanity/inventory", "node/gpu/sanity/pcie-path", "node/gpu/sanity/versions"
KNOWN = facts("dgx_h100", 1)
GIVE = "Give its output with --input"


def run_of(gate_id: str) -> Run:
    return gate(gate_id).plan(KNOWN, ["node01"])[0]


def given(gate_id: str, **texts: str | Captured) -> tuple[dict[str, Captured], list[Finding]]:
    """Sources by their keys (dashes as underscores), for the run's only command."""
    run = run_of(gate_id)
    plain = {
        key.replace("_", "-"): [text if isinstance(text, Captured) else Captured(text)] for key, text in texts.items()
    }
    return made(KNOWN, run, {run.commands[0].key: plain})


def judged(gate_id: str, **texts: str | Captured) -> Verdict:
    documents, lacks = given(gate_id, **texts)
    assert lacks == []
    return evaluate(gate(gate_id), KNOWN, run_of(gate_id), documents)


def lacking(gate_id: str, **texts: str | Captured) -> list[str]:
    documents, lacks = given(gate_id, **texts)
    assert documents == {}
    return [str(finding) for finding in lacks]


def test_an_inventory_holds_the_same_facts_as_nvmls_own() -> None:
    documents, _ = given(INVENTORY, smi=printed.SMI, nvlink=printed.nvlink())
    ours, theirs = json.loads(documents["inventory"].text)["gpus"], document("nvml/dgx_h100_healthy.json")["gpus"]
    other = {
        "uuid",
        "serial",
        "persistence",
        "ecc",
    }  # invented differently in the two fixtures; what no gate reads of an inventory
    assert [{key: value for key, value in gpu.items() if key not in other} for gpu in ours] == [
        {key: value for key, value in gpu.items() if key not in other} for gpu in theirs
    ]
    assert judged(INVENTORY, smi=printed.SMI, nvlink=printed.nvlink()).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("texts", "said", "outcome"),
    [
        (
            {"smi": printed.SMI},
            (
                "node01 gpu0: NVLink state not reported - Expected: the state of 18 links Actual: nvidia-smi -q -x "
                "does not contain it. Also give the output of `nvidia-smi nvlink -s`: --input nvlink=FILE."
            ),
            Outcome.ERROR,
        ),
        (
            {"smi": printed.SMI, "nvlink": printed.nvlink(inactive=(2, 4))},
            (
                "node01 gpu2: NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive). Power the node "
                "off and on once; if the link stays down, reseat the GPU, then replace it: "
                "docs/runbooks/nvlink-down.md."
            ),
            Outcome.FAIL,
        ),
        (
            {
                "smi": printed.SMI.replace("<current_link_width>16x<", "<current_link_width>8x<", 1),
                "nvlink": printed.nvlink(),
            },
            (
                "node01 gpu0: PCIe width - Expected: 16 Actual: 8. Reseat the GPU board; "
                "check the riser: docs/runbooks/gpu.md."
            ),
            Outcome.FAIL,
        ),
        (
            {"smi": printed.SMI.replace("<total>81559 MiB<", "<total>N/A<", 1), "nvlink": printed.nvlink()},
            "node01 gpu0: memory not reported - Expected: 81559 MiB Actual: nothing. Update the driver.",
            Outcome.ERROR,
        ),
    ],
    ids=["without NVLinks", "a link is down", "a narrow link", "no memory"],
)
def test_what_an_inventory_of_nvidia_smi_comes_to(texts: dict[str, str], said: str, outcome: Outcome) -> None:
    verdict = judged(INVENTORY, **texts)
    assert (verdict.outcome, str(verdict.findings[0])) == (outcome, said)


def test_a_gpu_that_is_lost_is_named_by_its_place() -> None:
    cut = (
        printed.SMI[: printed.SMI.index('\t<gpu id="00000000:61:00.0">')]
        + printed.SMI[printed.SMI.index('\t<gpu id="00000000:9D:00.0">') :]
    )
    for name in ("GPU 0000:61:00.0", "GPU3"):
        lost = f"Unable to determine the device handle for {name}: GPU is lost. Reboot the system to recover this GPU\n"
        report = Captured(lost + cut.replace("<attached_gpus>8<", "<attached_gpus>7<"), 15)
        verdict = judged(INVENTORY, smi=report, nvlink=printed.nvlink())
        said = (
            "node01 gpu3: GPU lost - Expected: a GPU that answers Actual: nvidia-smi: GPU "
            f"{name.removeprefix('GPU').strip()} is lost. "
        )
        assert (verdict.outcome, [str(finding).startswith(said) for finding in verdict.findings]) == (
            Outcome.FAIL,
            [True],
        )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"smi": Captured(printed.SMI, 9)}, "a report of nvidia-smi, but exit code 9"),
        ({"smi": printed.SMI[:-40]}, "the report is cut off: its last element is missing"),
        (
            {"smi": printed.SMI, "nvlink": printed.nvlink().replace(printed.UUIDS[3], "GPU-other")},
            "nvidia-smi nvlink -s lists GPU-other, which nvidia-smi -q -x does not: they are from two machines",
        ),
    ],
    ids=["an exit code", "cut off", "of two machines"],
)
def test_an_inventory_that_cannot_be_made_is_an_error(texts: dict[str, Any], said: str) -> None:
    step = "Give the tool's complete output; `rackready gate show` prints the gate's own command."
    assert lacking(INVENTORY, **texts) == [
        f"node01: outputs for inventory are not understood - Expected: the tools' own outputs Actual: {said}. {step}"
    ]


def test_pcie_paths_come_from_lspci() -> None:
    whole = printed.lspci(paths_of()["gpus"])
    documents, _ = given(PATH, lspci=whole)
    wanted = paths_of()
    for gpu in wanted["gpus"]:
        for link in gpu["links"]:
            link.update(correctable=None, vendor="0x10de" if link is gpu["links"][0] else "0x1000")
    assert json.loads(documents["path"].text) == wanted
    assert judged(PATH, lspci=whole).outcome is Outcome.PASS
    verdict = judged(
        PATH, lspci=printed.lspci(paths_of(n2_current_link_speed=16.0, n3_current_link_speed=16.0)["gpus"])
    )
    said = (
        "node01 gpu1: PCIe generation of 0000:41:00.0 to 0000:40:01.0 - Expected: generation 5 (32 GT/s) "
        f"Actual: generation 4 (16 GT/s). {PCIE_STEP}"
    )
    assert [str(finding) for finding in verdict.findings] == [said]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            {"smi": printed.SMI},
            (
                "node01: links of the bridges above each GPU: not in these outputs - Expected: `lspci -D -nn -vvv` "
                f"Actual: nvidia-smi -q -x shows only the GPU's own link. {GIVE} lspci=FILE."
            ),
        ),
        (
            {
                "lspci": "".join(
                    block + "\n\n" for block in printed.lspci(paths_of()["gpus"]).split("\n\n") if "10de:2330" in block
                )
            },
            (
                "node01: links up to the root port: not in these outputs - Expected: `lspci -D -nn -vvv` "
                f"Actual: no bridge leads to 0000:1b:00.0. {GIVE} lspci=FILE."
            ),
        ),
        (
            {"lspci": printed.lspci(paths_of()["gpus"]).replace("Root Port", "Upstream Port")},
            (
                "node01: links up to the root port: not in these outputs - Expected: `lspci -D -nn -vvv` "
                f"Actual: 0000:18:01.0, the highest bridge of 0000:1b:00.0, is not a root port. {GIVE} lspci=FILE."
            ),
        ),
    ],
    ids=["nvidia-smi alone", "without bridges", "without root ports"],
)
def test_a_path_that_breaks_off_is_an_error(texts: dict[str, str], said: str) -> None:
    assert lacking(PATH, **texts) == [said]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(" [0302]", ""), "no numbers of class and vendor: "),
        (
            lambda text: text + "\tCapabilities: <access denied>\n",
            "capabilities: <access denied>; run `lspci -D -nn -vvv` as root",
        ),
        (lambda text: text + "\n" + text, "0000:00:00.0 is in the list twice"),
        (lambda text: "pcilib: Cannot open\n" + text, "not the first line of a device: 'pcilib: Cannot open'"),
    ],
)
def test_a_list_of_devices_that_is_not_understood_is_an_error(change: Callable[[str], str], said: str) -> None:
    found = lacking(PATH, lspci=change(printed.lspci(paths_of()["gpus"])))
    assert len(found) == 1
    assert f"Actual: {said}" in found[0]


ALL = {
    "smi": printed.SMI,
    "module": printed.MODULE,
    "packages": printed.PACKAGES,
    "services": printed.SERVICES,
    "fabric_manager": printed.MANAGER,
}
"""The report's driver is that of the version set: 580.173.02."""


def test_versions_come_from_the_tools() -> None:
    documents, _ = given(VERSIONS, **ALL)
    assert json.loads(documents["versions"].text) == document("versions/dgx_h100_healthy.json")
    assert judged(VERSIONS, **ALL).outcome is Outcome.PASS
    assert judged(VERSIONS, **{**ALL, "packages": printed.DPKG_L}).outcome is Outcome.PASS


NO_NCCL = "package libnccl2 - Expected: 2.28.9-1+cuda13.0 Actual: not installed"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"packages": printed.PACKAGES.replace("installed libnccl2", "config-files libnccl2")}, NO_NCCL),
        ({"packages": printed.DPKG_L.replace("ii  libnccl2", "rc  libnccl2")}, NO_NCCL),
        (
            {
                "services": re.sub(
                    "(nvidia-dcgm.service) +loaded active running", "\u25cf \\1 loaded failed failed ", printed.SERVICES
                )
            },
            "nvidia-dcgm.service - Expected: active Actual: failed",
        ),
        (
            {"services": "ssh.service loaded active running ssh\n"},
            "nvidia-persistenced.service - Expected: active Actual: inactive",
        ),
        (
            {"module": printed.MODULE.replace("580.173.02", "570.133.20")},
            "loaded kernel module - Expected: 580.173.02 Actual: 570.133.20",
        ),
        (
            {"fabric_manager": printed.MANAGER.replace("173", "126")},
            "fabric manager - Expected: 580.173.02 Actual: 580.126.02",
        ),
    ],
)
def test_a_version_that_is_wrong_fails(changed: dict[str, str], said: str) -> None:
    verdict = judged(VERSIONS, **{**ALL, **changed})
    assert verdict.outcome is Outcome.FAIL
    assert str(verdict.findings[0]).startswith(f"node01: {said}")


def test_each_version_that_is_lacking_is_named_with_its_command() -> None:
    assert lacking(VERSIONS, smi=printed.SMI, packages=printed.PACKAGES, fabric_manager=printed.MANAGER) == [
        (
            "node01: loaded kernel module: not in these outputs - Expected: `cat /proc/driver/nvidia/version` "
            f"Actual: not given. {GIVE} module=FILE."
        ),
        (
            f"node01: state of services: not in these outputs - Expected: `{SERVICES.gives}` Actual: not given. "
            f"{GIVE} services=FILE."
        ),
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"module": "filename:       /lib/modules/6.1/updates/nvidia.ko\nversion:        580.173.02\n"},
            ("modinfo shows the module on disk, not the loaded one; `cat /proc/driver/nvidia/version` shows that"),
        ),
        (
            {"packages": "libnccl2\t2.28.9-1+cuda13.0\n"},
            (
                "no list of packages with states in the form of `dpkg-query -W -f '${db:Status-Status} ${Package} "
                "${Version}\\n'` or `dpkg -l`"
            ),
        ),
        ({"services": "active\nactive\nactive\n"}, "no list of services in the form of `systemctl list-units`"),
    ],
    ids=["modinfo", "dpkg-query without states", "is-active without names"],
)
def test_an_output_that_does_not_hold_the_fact_is_no_source(changed: dict[str, str], said: str) -> None:
    found = lacking(VERSIONS, **{**ALL, **changed})
    assert [item.split(" Actual: ", 1)[1].split(". Give the tool's", 1)[0] for item in found] == [said]


def test_ports_come_from_the_files_of_the_kernel() -> None:
    pair = facts("dgx_h100", 2)
    run = gate("pair/fabric/performance/ib-write-bw").plan(pair, list(pair.nodes))[0]
    documents, lacks = made(pair, run, {"link-first": {"files": [Captured(printed.port_files("mlx5_0", 7_000_000))]}})
    assert lacks == []
    found = json.loads(documents["link-first"].text)["devices"]["mlx5_0"]
    assert (found["state"], found["rate"], found["xmit_bytes"], set(found["errors"].values())) == (
        "4: ACTIVE",
        "400 Gb/sec (4X NDR)",
        7_000_000,
        {0},
    )
    lines = printed.port_files("mlx5_0", 0).replace(
        "/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)\n", ""
    )
    documents, lacks = made(pair, run, {"link-first": {"files": [Captured(lines)]}})
    wanted = "grep -H '' /sys/class/infiniband/mlx5_0/ports/1/{state,link_layer,rate,counters/*}"
    assert (documents, [str(finding) for finding in lacks]) == (
        {},
        [
            (
                f"node01: port of mlx5_0: not in these outputs - Expected: `{wanted}` "
                f"Actual: no /sys/class/infiniband/mlx5_0/ports/1/rate. {GIVE} files=FILE."
            ),
        ],
    )


def test_outputs_are_known_by_what_they_say() -> None:
    for gate_id, texts in (
        (INVENTORY, {"smi": printed.SMI, "nvlink": printed.nvlink()}),
        (PATH, {"lspci": printed.lspci(paths_of()["gpus"]), "smi": printed.SMI}),
        (VERSIONS, {key.replace("_", "-"): text for key, text in ALL.items()}),
    ):
        found = slots(KNOWN, run_of(gate_id))
        assert {recognised(found, text) for text in texts.values()} == {
            f"{run_of(gate_id).commands[0].key}:{key}" for key in texts
        }
        assert recognised(found, json.dumps(document("nvml/dgx_h100_healthy.json"))) is None
        assert recognised(found, "anything else\n") is None
