"""GPU inventory: the GPUs that NVML finds, compared with the platform profile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import printed
from rackready.gates.gpu import inventory_findings as kinds
from rackready.gates.gpu import parts
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.ondevice import nvml_inventory

_KEY = "inventory"
_PLAIN = re.compile(r"[!-~]+")
"""Characters of serial numbers, UUIDs, versions and addresses. Others could make two equal values look different."""


class Inventory(Gate):
    """Every GPU is there, has the model and board that were bought, and has all its NVLinks and PCIe lanes."""

    id = "node/gpu/sanity/inventory"
    findings = kinds.FINDINGS
    looks = True
    covers = frozenset({"node", "gpu", "nvlink"})

    class Inputs(base.Inputs):
        """PCIe as the board is wired, and the tolerance on memory."""

        pcie_width: int = Field(16, ge=1, le=32, description="PCIe lanes that every GPU must have trained")
        memory_tolerance_mib: int = Field(
            64,
            ge=0,
            le=4096,
            description="largest difference between memory.total and the profile, MiB; "
            "at most 4096 (judgement): models differ by 8 GB and more",
        )
        board_parts: tuple[str, ...] = Field(
            (),
            description="board part numbers that were bought, as `nvidia-smi -q` prints them; empty: the most common "
            "one",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Return one script per node."""
        return [Run.of_node(node, command(_KEY, node, nvml_inventory)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare NVML's answers with the platform and GPU profile."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "GPU inventory")) or output is None:
            return judge.verdict(node)
        try:
            found = document(output, nvml_inventory.FORMAT, printed.NvmlInventory)
        except FormatError as error:
            judge.error(node, kinds.INVENTORY_UNREADABLE, "a complete inventory document", error)
            return judge.verdict(node)
        if "error" in found:
            judge.error(node, kinds.NVML_REFUSED, "an answer", found["error"])
            return judge.verdict(node)
        self._node(judge, facts.nodes[node], node, found)
        return judge.verdict(node)

    def _node(self, judge: Judge, wanted: NodeFacts, node: str, found: dict[str, Any]) -> None:
        gpus = found["gpus"]
        if len(gpus) != found["count"]:
            judge.error(node, kinds.INVENTORY_CONTRADICTS, "as many GPUs as it counts", f"count {found['count']}")
            return
        judge.judged += 1
        judge.count("gpu_count", node, len(gpus), wanted.platform.gpus, f"platform profile {wanted.platform.id}")
        if len(gpus) > wanted.platform.gpus:
            judge.fail(
                node,
                kinds.GPUS_TOO_MANY,
                f"{wanted.platform.gpus} GPUs",
                len(gpus),
                platform=wanted.platform.id,
                count=len(gpus),
            )
        elif len(gpus) < wanted.platform.gpus:
            present = [str(gpu["pci"]) for gpu in gpus if gpu.get("pci")]
            judge.fail(
                node,
                kinds.GPUS_MISSING,
                f"{wanted.platform.gpus} GPUs",
                f"{len(gpus)}{parts.empty_places(wanted, present) if present else ''}",
            )
        judge.measured.add(node)
        self._unique(judge, node, gpus, parts.of_one_serial(wanted.gpu))
        for gpu, name in zip(gpus, _names(wanted, gpus), strict=True):
            if gpu.get("lost"):
                judge.fail(Place(node, name), kinds.INVENTORY_GPU_LOST, "a GPU that answers", gpu["lost"])
            else:
                self._gpu(judge, wanted, (node, name), gpu)
        if not self.inputs.board_parts:
            _compare_boards(
                judge,
                node,
                {name: gpu for gpu, name in zip(gpus, _names(wanted, gpus), strict=True) if not gpu.get("lost")},
            )

    @staticmethod
    def _unique(judge: Judge, node: str, gpus: list[dict[str, Any]], sharing: int) -> None:
        """Fail for serials and UUIDs of several GPUs. ``sharing``: how many GPUs may have one serial."""
        for field, most in (("serial", sharing), ("uuid", 1)):
            values = Counter(gpu.get(field) for gpu in gpus if gpu.get(field))
            for value, times in values.items():
                if times > most:
                    judge.fail(
                        node,
                        kinds.NOT_UNIQUE,
                        "every GPU its own" if most == 1 else f"one for at most {most} GPUs, those of a module",
                        f"{value} on {times} GPUs",
                        field=field,
                    )

    def _gpu(self, judge: Judge, wanted: NodeFacts, part: tuple[str, str], gpu: dict[str, Any]) -> None:
        """Judge one GPU that answers. ``part``: the node and the name of the GPU."""
        node, name = part
        where = Place(node, name)
        judge.equal(where, kinds.MODEL, wanted.gpu.product_name, gpu.get("name"))
        judge.equal(where, kinds.PCI_DEVICE, wanted.gpu.pci_device_id, gpu.get("device_id"))
        self._board(judge, where, gpu)
        for field, label in (("serial", "serial"), ("uuid", "uuid"), ("vbios", "vbios"), ("pci", "PCI address")):
            judge.judged += 1
            if gpu.get(field) and not _PLAIN.fullmatch(gpu[field]):
                judge.error(
                    where, kinds.IDENTITY_UNREADABLE, "letters, digits and signs", ascii(gpu[field])[:60], label=label
                )
            if not gpu.get(field):
                judge.error(
                    where,
                    kinds.IDENTITY_NOT_REPORTED,
                    "a value",
                    gpu.get("unread", {}).get(field, "nothing"),
                    label=label,
                )
        self._memory(judge, wanted, where, gpu)
        ok = judge.equal(where, kinds.PCIE_WIDTH, self.inputs.pcie_width, gpu.get("pcie_width"))
        ok &= self._generation(judge, wanted, where, gpu)
        if ok:
            judge.measured.add(f"{node}/{name}")
        if wanted.gpu.nvlink is not None:
            self._nvlink(judge, part, wanted.gpu.nvlink.links, gpu)

    def _board(self, judge: Judge, where: str, gpu: dict[str, Any]) -> None:
        """Compare the board's part number with those that the site bought.

        There may be several: later boards are often of another revision. If the site names none, the boards of a node
        are compared with each other.
        """
        if not self.inputs.board_parts:
            return
        part, known = gpu.get("board_part"), ", ".join(self.inputs.board_parts)
        judge.judged += 1
        if not part:
            judge.error(
                where,
                kinds.BOARD_PART_NOT_REPORTED,
                f"one of {known}",
                gpu.get("unread", {}).get("board_part", "nothing"),
            )
        elif part not in self.inputs.board_parts:
            judge.fail(where, kinds.BOARD_PART, f"one of {known}", part)

    def _memory(self, judge: Judge, wanted: NodeFacts, where: str, gpu: dict[str, Any]) -> None:
        judge.judged += 1
        size = gpu.get("memory_mib")
        bound = wanted.gpu.memory.value
        if not isinstance(size, int):
            judge.error(
                where, kinds.MEMORY_NOT_REPORTED, f"{bound:.0f} MiB", gpu.get("unread", {}).get("memory_mib", "nothing")
            )
            return
        judge.metric("memory", where, size, "MiB")
        if abs(size - bound) > self.inputs.memory_tolerance_mib:
            judge.fail(where, kinds.MEMORY, f"{bound:.0f} MiB", f"{size} MiB")

    @staticmethod
    def _generation(judge: Judge, wanted: NodeFacts, where: str, gpu: dict[str, Any]) -> bool:
        """Return whether the trained generation is the highest that the GPU and its slot support; else fail.

        A card in a slot (form pcie) may train down while idle.
        """
        most = gpu.get("pcie_gen_max")
        if most is None:
            judge.judged += 1
            judge.error(
                where,
                kinds.PCIE_GENERATION_NOT_REPORTED,
                "the highest that GPU and slot support",
                gpu.get("unread", {}).get("pcie_gen_max", "nothing"),
            )
            return False
        actual = gpu.get("pcie_gen")
        if wanted.gpu.form == "pcie" and isinstance(actual, int) and actual < most:
            said = (
                f"{where}: PCIe generation {actual} of {most} while idle, as such a card may; "
                "node/gpu/performance/nvbandwidth measures it under load"
            )
            judge.remark(said)
            return True
        return judge.equal(where, kinds.PCIE_GENERATION, most, actual)

    @staticmethod
    def _nvlink(judge: Judge, part: tuple[str, str], links: int, gpu: dict[str, Any]) -> None:
        node, name = part
        where = Place(node, name)
        states = gpu.get("nvlinks")
        judge.judged += 1
        if why := gpu.get("unread", {}).get("nvlinks"):
            judge.error(where, kinds.NVLINK_STATE_NOT_GIVEN, f"the state of {links} links", why)
            return
        if (
            not isinstance(states, dict)
            or any(not isinstance(state, bool) for state in states.values())
            or any(key.startswith("nvlink") for key in gpu.get("unread", {}))
        ):
            judge.error(where, kinds.NVLINK_STATE_NOT_REPORTED, f"the state of {links} links", "nothing")
            return
        active = sorted(int(link) for link, state in states.items() if state)
        judge.count("nvlinks_active", where, len(active), links, "GPU profile")
        judge.measured.update(f"{node}/{name}/nvlink{link}" for link in active)
        if len(active) != links:
            down = sorted(set(range(links)) - set(active))
            plural = "s" if len(down) != 1 else ""
            detail = (
                f"{len(active)} (link{plural} {', '.join(str(link) for link in down)} inactive)"
                if down
                else str(len(active))
            )
            judge.fail(where, kinds.NVLINK_DOWN, f"{links} links active", detail)


def _compare_boards(judge: Judge, node: str, gpus: dict[str, dict[str, Any]]) -> None:
    """Compare the board part numbers of a node's GPUs with each other: they are bought as one product.

    A few different numbers are noted: a replaced GPU has the number of a spare part (965-2G520-A800-000 among seven
    692-2G520-0200-000, all H100 80GB HBM3 of one image: NVIDIA/k8s-test-infra, capture qx-h100.xml of a healthy node).
    """
    told = Counter(gpu["board_part"] for gpu in gpus.values() if gpu.get("board_part"))
    if not told:
        judge.remark("no GPU reports its board part number: boards are not judged")
        return
    judge.judged += 1
    (most, times), *others = told.most_common()
    if others and 2 * times <= len(gpus):
        judge.fail(
            node,
            kinds.BOARD_PARTS_DIFFER,
            "one for all GPUs",
            ", ".join(f"{part} on {count}" for part, count in sorted(told.items())),
        )
        return
    for name, gpu in gpus.items():
        if not gpu.get("board_part"):
            why = gpu.get("unread", {}).get("board_part", "nothing")
            judge.error(Place(node, name), kinds.SIBLINGS_TELL_BOARD, f"{most}, as its siblings", why)
    odd = [
        f"{gpu['board_part']} on {name}" for name, gpu in gpus.items() if gpu.get("board_part") not in {None, "", most}
    ]
    judge.remark(f"board part number {', '.join([most, *odd])}: not compared with what was bought (input board_parts)")


def _names(wanted: NodeFacts, gpus: list[dict[str, Any]]) -> list[str]:
    """Return the name of each GPU, from its place in the chassis: NVML's own numbers close up after a missing GPU.

    A lost GPU has no address. If no GPU is missing, NVML's number is its place; otherwise it is named by NVML's number.
    """
    names = [parts.name(wanted, gpu["pci"], gpu["index"]) if gpu.get("pci") else "" for gpu in gpus]
    whole = len(gpus) == wanted.platform.gpus
    free = [name for at in range(wanted.platform.gpus) if (name := f"gpu{at}") not in names]
    silent = [
        f"gpu{gpu['index']}" if whole and f"gpu{gpu['index']}" in free else f"GPU {gpu['index']} of NVML"
        for gpu in gpus
    ]
    return [name or other for name, other in zip(names, silent, strict=True)]
