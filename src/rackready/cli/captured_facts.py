"""Facts about the nodes of `gate evaluate`: from a profile and options, or from a site file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackready.cli.gate_show import facts_of_profile
from rackready.cli.output import env_paths
from rackready.model.choices import FabricKind, NcclNet
from rackready.model.host_list import host_list
from rackready.model.near import folded
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import GateFacts


@dataclass(frozen=True, slots=True)
class About:
    """Options that describe the nodes. ``nodes``: their number; ``named``: their names."""

    profile: str = ""
    env: str = ""
    site: Path | None = None
    nodes: int | None = None
    named: tuple[str, ...] = ()
    gpus: int | None = None
    fabric: FabricKind | None = None
    nccl_net: NcclNet | None = None
    hcas: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def known(self, least: int) -> tuple[GateFacts, dict[str, dict[str, Any]]]:
        """Return facts, and gate id -> inputs of the site's gate set. Raises RackreadyError for missing facts.

        ``least``: nodes that the gate needs.
        """
        from rackready.gates.records.offline_nics import with_addresses, with_hcas  # noqa: PLC0415

        self._agree()
        found, inputs = self._of_site() if self.env or self.site else (self._of_profile(least), {})
        options = {
            name: value for name, value in (("kind", self.fabric), ("nccl_net", self.nccl_net)) if value is not None
        }
        found = replace(found, fabric=found.fabric.model_copy(update=options))
        return with_addresses(with_hcas(found, self.hcas), self.addresses), inputs

    def _agree(self) -> None:
        """Raise RackreadyError for options that contradict or repeat each other, or are missing."""
        if bool(self.profile) == bool(self.env or self.site):
            actual = "both" if self.profile else "neither"
            raise RackreadyError(
                "gate evaluate",
                expected="--profile, or a site by --env or --site",
                actual=actual,
                next_step="Give one of them.",
            )
        if not self.profile and not self.named:
            raise RackreadyError(
                "gate evaluate",
                expected="--node for each node whose outputs these are",
                actual="none",
                next_step="Name the nodes of the site.",
            )
        if not self.profile and self.gpus is not None:
            raise RackreadyError(
                "gate evaluate --gpus",
                expected="--profile with it",
                next_step="The site file describes the nodes of a site.",
            )
        if self.named and self.nodes not in {None, len(self.named)}:
            raise RackreadyError(
                f"--nodes {self.nodes}",
                expected=f"{len(self.named)}, as many as --node names",
                next_step="Omit one of the two.",
            )
        if len(set(self.named)) != len(self.named):
            raise RackreadyError(
                "--node", expected="each node once", actual=", ".join(self.named), next_step="Correct it."
            )

    def _of_profile(self, least: int) -> GateFacts:
        return facts_of_profile(self.profile, self.named or max(least, self.nodes or 1), self.gpus)

    def _of_site(self) -> tuple[GateFacts, dict[str, dict[str, Any]]]:
        from rackready.design.site import load_site  # noqa: PLC0415
        from rackready.gates.engine.site_check import require_gates  # noqa: PLC0415
        from rackready.gates.engine.site_facts import site_facts  # noqa: PLC0415
        from rackready.profiles.loader import gates_of  # noqa: PLC0415

        paths = env_paths(self.env or "sim")
        site = load_site(self.env or "sim", site_file=self.site, root=paths.root)
        require_gates(site, str(self.site or paths.site_file))
        names = [node.name for node in site.nodes()]
        if unknown := sorted(set(self.named) - set(names)):
            raise RackreadyError(
                f"--node {', '.join(self.named)}",
                expected=f"some of {folded(names, *unknown)}",
                actual=host_list(unknown),
                next_step="Correct it: the site file names the nodes.",
            )
        return site_facts(site, self.named), {entry.id: dict(entry.inputs) for entry in gates_of(site.gates)}


def given_inputs(gate_id: str, given: Sequence[str]) -> dict[str, object]:
    """Return a gate's inputs from NAME=VALUE, values read as YAML. Raises RackreadyError with every wrong input."""
    from rackready.design.yaml import read_value  # noqa: PLC0415
    from rackready.gates.engine.registry import input_problems  # noqa: PLC0415

    out: dict[str, object] = {}
    for item in given:
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise RackreadyError(
                f"--set {item}",
                expected="NAME=VALUE, e.g. size=8G",
                next_step=f"`rackready gate show {gate_id}` lists the inputs.",
            )
        if name in out:
            raise RackreadyError(
                f"--set {item}",
                expected=f"one value for {name}",
                actual=f"{out[name]} before it",
                next_step="Give each once.",
            )
        try:
            out[name] = read_value(value)
        except ValueError as error:
            raise RackreadyError(
                f"--set {item}", expected="a YAML value", actual=error, next_step="Correct it."
            ) from error
    if problems := list(input_problems("--set ", gate_id, out)):
        raise RackreadyError.of(problems)
    return out
