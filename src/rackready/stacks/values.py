"""Values on the wire between the engine and our resources, and what every resource of the provider needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN

from rackready.model.problems import RackreadyError
from rackready.paths import Database, EnvPaths, project_root

Props = Mapping[str, PropertyValue]


def plain(value: PropertyValue) -> Any:  # noqa: ANN401 - JSON
    """Return a property value as JSON data (whole numbers as int); an unknown one as None."""
    inner = value.value
    if isinstance(inner, Mapping):
        return {key: plain(item) for key, item in inner.items()}
    if isinstance(inner, tuple):
        return [plain(item) for item in inner]
    if isinstance(inner, Computed) or inner == UNKNOWN:
        return None
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    return inner


def wrapped(value: Any) -> PropertyValue:  # noqa: ANN401 - JSON
    """Return JSON data as a property value."""
    if isinstance(value, Mapping):
        return PropertyValue({key: wrapped(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return PropertyValue([wrapped(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    return PropertyValue(value)


class IncompleteError(RackreadyError):
    """A resource exists and is not usable: the engine records it and tries again at the next update."""

    def __init__(
        self,
        resource_id: str,
        properties: dict[str, PropertyValue],
        error: RackreadyError,
        inputs: dict[str, PropertyValue],
    ) -> None:
        self.resource_id = resource_id
        self.properties = properties
        self.inputs = inputs
        super().__init__(error)
        self.messages = error.messages


def state_dir(env: str) -> Path:
    """Return the folder of the environment's ledger and pins: the caller's, else the one below the checkout."""
    if (given := os.environ.get("RACKREADY_STATE_DIR")) and os.environ.get("RACKREADY_ENV", env) == env:
        return Path(given)
    return EnvPaths(project_root(), env).state


def database(env: str) -> Database:
    """Return the ledger of the environment."""
    return EnvPaths(project_root(), env).database_in(state_dir(env))
