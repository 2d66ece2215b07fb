"""Switch configuration as commands of its operating system."""

from __future__ import annotations

from rackready.design.switches import SwitchConfig
from rackready.render.environment import render


def render_switch(config: SwitchConfig, *, roce_state_syntax: bool = True) -> str:
    """Return the commands of one switch, one per line, in a fixed order and without a time stamp.

    ``roce_state_syntax``: ``nv set qos roce state enabled`` (Cumulus Linux 5.15 and later) rather than ``enable on``.
    """
    return render(f"switches/{config.os}/root.j2", switch=config, roce_state_syntax=roce_state_syntax)
