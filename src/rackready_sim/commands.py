"""The command `rackready sim`: the simulated rack on this machine.

rackready finds it by the entry point ``sim`` of group ``rackready.commands``.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import rackready_sim.ethtwin.report as ethernet
import rackready_sim.ibtwin.report as infiniband
from rackready.cli import complete
from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress
from rackready.design.site import load_site
from rackready.model.problems import RackreadyError
from rackready_sim.faults import FAULTS
from rackready_sim.rack import Rack

app = typer.Typer(
    help="The simulated rack on this machine: real Linux hosts, BMCs, switches, mirror and scheduler. Needs root.",
    no_args_is_help=True,
)

Node = Annotated[str, typer.Argument(help="Node, e.g. node03.", autocompletion=complete.nodes)]
Severity = Annotated[
    float | None,
    typer.Option(
        "--severity",
        help="Degree of the fault under the fault's own name: factor, count, width, gen, rate, mask, code, ...",
    ),
]
Repaired = Annotated[str | None, typer.Argument(help="Fault to repair; by default all faults of the node.")]
SiteFile = Annotated[
    Path | None,
    typer.Option(
        "--site", help="Site file; default: inventories/ENV/site.yml.", show_default=False, exists=True, dir_okay=False
    ),
]
Engine = Annotated[
    str,
    typer.Option("--engine", help="InfiniBand: routing engine of opensm (its -R): updn, ftree, minhop, ..."),
]
Uplinks = Annotated[
    int, typer.Option("--uplinks", min=0, help="Number of uplinks whose loss is tried, one after the other.")
]
BareMetal = Annotated[
    int | None,
    typer.Option(
        "--metal",
        min=0,
        show_default=False,
        help="Number of nodes, from the first, that are bare metal: QEMU machines with firmware and blank disks, to be "
        "imaged over the network. Default: as the rack is, none in a new one.",
    ),
]
OnlyMetal = Annotated[
    bool,
    typer.Option("--bare", help="Only bare-metal nodes, their BMCs and network: no container of any kind is made."),
]
Chosen = Annotated[str, typer.Argument(help="Fault; `rackready sim faults` lists them.")]

_DEGREES = (
    "severity",
    "factor",
    "count",
    "width",
    "gen",
    "rate",
    "mask",
    "code",
    "microseconds",
    "seconds",
    "mtu",
    "share",
)


def _rack(env: str, metal: int | None = None, *, bare: bool = False) -> Rack:
    began = time.monotonic()

    def say(text: str) -> None:
        progress.print(f"[{time.monotonic() - began:5.1f} s] {text}")

    return Rack(env_paths(env).root, env, say, metal=metal, bare=bare)


@app.command()
def up(env: Env = "sim", metal: BareMetal = None, output: Output = Format.TEXT, *, bare: OnlyMetal = False) -> None:
    """Create the rack, or its missing parts. Nodes and injected faults stay as they are."""
    result = _rack(env, metal, bare=bare).up()
    if output is Format.JSON:
        print_json({"changes": result.changes, "seconds": round(result.seconds, 1)})
    elif result.changes:
        console.print(f"simulated rack is up ({result.seconds:.0f} s)")
    else:
        console.print(f"simulated rack is up, nothing changed ({result.seconds:.0f} s)")


@app.command()
def down(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Remove the rack: containers, bridge, images of this checkout, state and overlay. Tools and environment stay."""
    removed = _rack(env).down()
    if output is Format.JSON:
        print_json({"removed": removed})
    else:
        what = f"{len(removed)} things removed" if removed else "there was nothing to remove"
        console.print(f"simulated rack is down: {what}")


@app.command()
def status(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show the machines, their power and the injected faults. Exit code 1 if the rack is not up."""
    found = _rack(env).status()
    if output is Format.JSON:
        print_json(found)
    else:
        for row in found["machines"]:
            faulty = ", ".join(_words(item) for item in row.get("faults", []))
            console.print(f"{row['name']:12} {row['kind']:10} {row['address']:15} {row['state']:8} {faulty}".rstrip())
        console.print(f"rack: {'up' if found['up'] else 'not up: run `rackready sim up`'}")
    raise typer.Exit(0 if found["up"] else 1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def inject(
    ctx: typer.Context,
    node: Node,
    fault: Chosen,
    severity: Severity = None,
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Break a node's hardware. Nothing else is told: gates have to find the fault.

    Options of a fault (--gpu 3, --factor 0.5) are listed by `rackready sim faults`.
    """
    params = _given(ctx.args)
    if severity is not None:
        params[_degree(fault)] = severity
    recorded = _rack(env).inject(node, fault, **params)
    if output is Format.JSON:
        print_json({"node": node, "fault": recorded})
    else:
        console.print(f"{node}: {_words(recorded)} injected")


@app.command()
def clear(node: Node, fault: Repaired = None, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Repair a node's hardware. Exit code 1 if it has no fault of that name."""
    cleared = _rack(env).clear(node, fault)
    if output is Format.JSON:
        print_json({"node": node, "cleared": cleared})
    else:
        console.print(f"{node}: {cleared} fault{'' if cleared == 1 else 's'} repaired")
    raise typer.Exit(1 if fault and not cleared else 0)


@app.command()
def faults(output: Output = Format.TEXT) -> None:
    """List the faults that can be injected, with their options and defaults."""
    if output is Format.JSON:
        rows = [
            {"name": item.name, "layer": item.layer, "description": item.description, "params": item.params}
            for item in FAULTS.values()
        ]
        print_json({"faults": rows})
        return
    for fault in FAULTS.values():
        takes = " ".join(f"--{key} {shlex.quote(str(value))}" for key, value in fault.params.items())
        console.print(f"{fault.name:32} {fault.description}{f' ({takes})' if takes else ''}")


@app.command()
def fabric(
    env: Env = "sim",
    site: SiteFile = None,
    engine: Engine = "updn",
    uplinks: Uplinks = infiniband.UPLINKS,
    output: Output = Format.TEXT,
) -> None:
    """Rehearse the planned fabric: InfiniBand in ibsim under the real opensm, RoCE in namespaces under the real FRR.

    It tests routes, balance and losses; for InfiniBand also credit loops and partitions. Nothing of the site is
    touched. RoCE needs root, for network namespaces. Exit code 1 if something is wrong without any loss.
    """
    loaded = load_site(env, site_file=site, root=env_paths(env).root)
    if loaded.fabric.kind == "infiniband":
        found: infiniband.Rehearsal | ethernet.Rehearsal = infiniband.rehearse(loaded, engine, uplinks, progress.print)
    else:
        found = ethernet.rehearse(loaded, uplinks, progress.print)
    if output is Format.JSON:
        print_json(found.document())
    else:
        for line in found.lines():
            console.print(line)
    raise typer.Exit(0 if found.passed else 1)


def _given(words: list[str]) -> dict[str, Any]:
    """Return the fault's own options, `--name value` or `--name=value`. Raise RackreadyError for anything else."""
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        told = value if sign else next(rest, None)
        if not name.startswith("--") or told is None:
            raise RackreadyError(
                word,
                expected="an option with its value, e.g. --gpu 3",
                actual=word,
                next_step="`rackready sim faults` lists the options of each fault.",
            )
        given[name.removeprefix("--")] = told
    return given


def _degree(fault: str) -> str:
    takes = FAULTS[fault].params if fault in FAULTS else {}
    return next((name for name in _DEGREES if name in takes), "severity")


def _words(fault: dict[str, Any]) -> str:
    return " ".join([fault["name"], *(f"{key}={value}" for key, value in fault["params"].items())])
