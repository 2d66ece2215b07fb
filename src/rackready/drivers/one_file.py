"""Programs of several modules as one text: for an interpreter on another machine that has no rackready."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence

_LOADS = """
for name, source in SOURCES.items():
    for place in [name.rsplit(".", count)[0] for count in range(name.count("."), 0, -1)]:
        sys.modules.setdefault(place, types.ModuleType(place)).__path__ = []
    module = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    exec(compile(source, name, "exec"), module.__dict__)
"""


def loaded(modules: Sequence[str]) -> str:
    """Return statements that make modules importable, each after those that it imports.

    They need ``sys`` and ``types``. Raises ValueError for a module that cannot be quoted.
    """
    parts = ["SOURCES = {}\n"]
    for name in modules:
        source = inspect.getsource(importlib.import_module(name))
        if "'''" in source:
            message = f"{name}: three single quotes would end its text"
            raise ValueError(message)
        parts.append(f"SOURCES[{name!r}] = r'''{source}'''\n")
    return "".join([*parts, _LOADS])


def one_file(modules: Sequence[str]) -> str:
    """Return a program that runs ``main()`` of the last of the modules, with the exit code that it returns."""
    return f"import sys, types\n{loaded(modules)}\nsys.exit(sys.modules[{modules[-1]!r}].main())\n"
