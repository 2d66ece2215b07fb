"""Registry of gates. Importing a module of gates, ours or a plug-in's (``rackready.gates``), registers its classes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType

from pydantic import ValidationError

import rackready.gates as package
from rackready.entry_points import GATES, PlugIn, plug_ins
from rackready.gates.base import REGISTRY, Gate
from rackready.gates.engine.contract import breaches
from rackready.model.near import among
from rackready.model.problems import Problem, RackreadyError
from rackready.model.wanted import given, path_text, steps, told


class UnknownGateError(RackreadyError):
    """No gate has that id."""


class GateInputsError(RackreadyError):
    """A gate set gives a gate inputs that it does not accept."""


def all_gates() -> dict[str, type[Gate]]:
    """Return every gate by id, sorted. Raise PlugInError if a plug-in's gates cannot be used."""
    _import_all()
    _import_plug_ins(plug_ins(GATES))
    return dict(sorted(REGISTRY.items()))


@cache
def _import_all() -> None:
    """Import every topic, once per process: a stage asks for thousands of gates."""
    for module in pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}."):
        importlib.import_module(module.name)


@cache
def _import_plug_ins(found: tuple[PlugIn, ...]) -> None:
    """Import the modules of plug-ins, once per process, and check their gates as tests check ours."""
    for plug_in in found:
        module = plug_in.load(ModuleType)
        theirs = [kind for kind in REGISTRY.values() if plug_in.has(kind)]
        if not theirs:
            plug_in.refuse(
                "a module that defines gates, or imports those of its package", f"{module.__name__} has none"
            )
        if wrong := [f"gate {kind.id}: {text}" for kind in theirs for text in breaches(kind)]:
            plug_in.refuse("gates that keep to the contract (docs/howto/extend.md)", "; ".join(wrong))


def gate(wanted: str, inputs: Mapping[str, object] | None = None) -> Gate:
    """Return the gate with this id and these inputs.

    Raise UnknownGateError, which lists the known ids, or GateInputsError, which names the input.
    """
    known = all_gates()
    if wanted not in known:
        raise UnknownGateError(
            f"gate {wanted!r} does not exist",
            expected=f"one of {among(known, wanted)}",
            next_step="Correct the id in the gate set or the command: `rackready gate list` shows the ids.",
        )
    try:
        return known[wanted](inputs)
    except ValidationError as error:
        raise GateInputsError.of(_wrong_inputs("inputs.", known[wanted], error)) from error


def input_problems(where: str, gate_id: str, inputs: Mapping[str, object]) -> Iterator[Problem]:
    """Yield the problems of a gate's inputs. ``where``: prefix of an input's path."""
    kind = all_gates()[gate_id]
    try:
        kind(inputs)
    except ValidationError as error:
        yield from _wrong_inputs(where, kind, error)


def _wrong_inputs(where: str, kind: type[Gate], error: ValidationError) -> Iterator[Problem]:
    """Yield the problems that pydantic found. The message of a ValueError says what the input has to be."""
    accepted = ", ".join(sorted(kind.Inputs.model_fields)) or "none"
    for item in error.errors(include_url=False):
        path = (where + path_text(steps(item))).replace(".[", "[").rstrip(". ")
        if item["type"] == "extra_forbidden":
            yield Problem.of(
                path, f"gate {kind.id} has no such input", "Correct or remove it.", expected=f"one of {accepted}"
            )
        else:
            step = f"Correct it; `rackready gate show {kind.id}` describes the inputs."
            whole = item["type"] == "value_error" and isinstance(item["input"], dict)
            words = told(item)
            actual = words.actual or ("" if whole else given(item))  # the message is about parts of a mapping
            yield Problem.of(path, words.at(f"gate {kind.id}"), step, expected=words.expected, actual=actual)
