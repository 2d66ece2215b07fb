"""What bare metal leaves running beside its rack: machines, and the boot service of a run that was cut."""

from __future__ import annotations

from pathlib import Path

from rackready.drivers.boot_service import daemons
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.programs import both
from rackready_sim.metal.machine import started
from rackready_sim.store import Store


def end(store: Store, state: Path) -> list[str]:
    """End all of it; return what ran. ``state``: of the environment, which is removed next. Raise SimError."""
    ended = [f"{machine.name}: QEMU" for machine in started(store) if machine.cut()]
    layout = Layout(state / "boot")
    if layout.root.is_dir():
        programs = reversed(both(layout))
        ended += [f"boot service: {program.name}" for program in programs if daemons.stop(program, layout)]
    return ended
