"""Definition of a fault: a change of one node's hardware state. Each layer has its own module beside this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rackready.model.problems import RackreadyError

State = dict[str, Any]
Apply = Callable[..., None]
Params = dict[str, int | float | str]

GPU: Params = {"gpu": 0}
NIC: Params = {"nic": 1}


class FaultError(RackreadyError):
    """A fault that cannot be injected: unknown name, unknown or missing parameter, or a part that the node lacks."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of hardware fault."""

    name: str
    layer: str
    description: str
    apply: Apply
    params: Params = field(default_factory=dict)
    """Parameter to default value; the default's type is the parameter's type."""
    caught_by: str = ""
    """Id of the gate that must catch it (for documentation and tests); "" if a phase before the gates does."""
    at_boot: bool = False
    """Whether it appears only after the next power cycle."""


def part(state: State, kind: str, index: int, key: str = "index") -> State:
    """Return one part of the state. Raise FaultError if the node has none of that index."""
    found: State | None = next((item for item in state.get(kind, []) if item[key] == index), None)
    if found is None:
        known = ", ".join(str(item[key]) for item in state.get(kind, [])) or "none"
        raise FaultError(
            f"{state.get('node', 'node')} {kind}",
            expected=f"one of {known}",
            actual=index,
            next_step="Name a part that the node has.",
        )
    return found


def gpu_of(state: State, gpu: int) -> State:
    """Return the GPU of that index. Raise FaultError if the node has none."""
    return part(state, "gpus", gpu)
