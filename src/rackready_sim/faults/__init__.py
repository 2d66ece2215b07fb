"""Faults of a simulated node's hardware state. They change only hardware; the tested code does not know of them."""

from __future__ import annotations

import copy
from typing import Any

from rackready_sim.faults import bmc, fabric, gpu, gpu_links, host, metal, optics
from rackready_sim.faults.base import Fault, FaultError, State

__all__ = ["FAULTS", "Fault", "FaultError", "clear", "inject"]

_KEPT = ("faults", "boot_count", "node", "index")
"""Keys of the state that a repair keeps."""

LAYERS = (gpu, gpu_links, fabric, host, optics, bmc, metal)
FAULTS: dict[str, Fault] = {fault.name: fault for layer in LAYERS for fault in layer.FAULTS}


def inject(state: State, name: str, /, **params: Any) -> None:
    """Apply the named fault to ``state`` in place, and record it in ``state['faults']``.

    Raises FaultError for an unknown fault, parameter or part; the state is then unchanged.
    """
    fault = FAULTS.get(name)
    if fault is None:
        raise FaultError(
            f"Fault '{name}'",
            expected=f"one of {', '.join(sorted(FAULTS))}",
            actual=f"'{name}'",
            next_step="Name a fault from the list.",
        )
    chosen = {**fault.params, **_typed(fault, params)}
    fault.apply(state, **chosen)
    state["faults"].append({"name": name, "params": chosen})


def clear(state: State, healthy: State, name: str | None = None) -> int:
    """Repair one fault by name, or all of them, from the healthy state; return how many were repaired."""
    kept = [item for item in state["faults"] if name is not None and item["name"] != name]
    cleared = len(state["faults"]) - len(kept)
    if cleared:
        state.update({key: copy.deepcopy(value) for key, value in healthy.items() if key not in _KEPT})
        state["faults"] = []
        for item in kept:
            inject(state, item["name"], **item["params"])
    return cleared


def _typed(fault: Fault, params: dict[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in params.items() if value is not None}
    unknown = sorted(set(given) - set(fault.params))
    if unknown:
        takes = ", ".join(sorted(fault.params)) or "no parameters"
        raise FaultError(
            f"Fault '{fault.name}'",
            expected=takes,
            actual=", ".join(unknown),
            next_step="Leave out unknown parameters.",
        )
    try:
        return {key: type(fault.params[key])(value) for key, value in given.items()}
    except ValueError as error:
        raise FaultError(
            f"Fault '{fault.name}'",
            expected="a value of the parameter's type",
            actual=error,
            next_step="Give a number.",
        ) from error
