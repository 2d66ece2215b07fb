"""`rackready sim`: the simulated rack on this machine."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json, progress
from rackready.sim.faults import FAULTS
from rackready.sim.rack import Rack

app = typer.Typer(help="The simulated rack on this machine: real Linux hosts, BMCs, switches, mirror and scheduler. Needs root.", no_args_is_help=True)

Node = Annotated[str, typer.Argument(help="Node, e.g. node03.")]
Gpu = Annotated[int | None, typer.Option("--gpu", help="GPU index, from 0.")]
Nic = Annotated[int | None, typer.Option("--nic", help="NIC, by its rail, from 1.")]
Port = Annotated[str | None, typer.Option("--port", help="Port of a switch, e.g. swp1.")]
Other = Annotated[int | None, typer.Option("--other", help="The other NIC of a swap, by its rail.")]
Link = Annotated[int | None, typer.Option("--link", help="NVLink of the GPU, from 0.")]
Severity = Annotated[
    float | None,
    typer.Option("--severity", help="How bad, for faults that have degrees: what they call factor, count, width, gen, rate, mask or code."),
]
Repaired = Annotated[str | None, typer.Argument(help="Fault to repair; all of the node's when absent.")]
Chosen = Annotated[str, typer.Argument(help="Fault; `rackready sim faults` lists them.")]

_DEGREES = ("severity", "factor", "count", "width", "gen", "rate", "mask", "code", "microseconds", "seconds", "mtu", "share")


def register(parent: typer.Typer) -> None:
    """Add the command group to the application."""
    parent.add_typer(app, name="sim")


def _rack(env: str) -> Rack:
    began = time.monotonic()
    return Rack(env_paths(env).root, env, say=lambda text: progress.print(f"[{time.monotonic() - began:5.1f} s] {text}", markup=False))


@app.command()
def up(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Make the rack, or what is missing of it. Nodes stay as they are, injected faults stay."""
    result = _rack(env).up()
    if output is Format.JSON:
        print_json({"changes": result.changes, "seconds": round(result.seconds, 1)})
    elif result.changes:
        console.print(f"simulated rack is up ({result.seconds:.0f} s)", markup=False)
    else:
        console.print(f"simulated rack is up, nothing changed ({result.seconds:.0f} s)", markup=False)


@app.command()
def down(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Remove the rack: containers, bridge, images of this clone, its state and overlay. Tools and environment stay."""
    removed = _rack(env).down()
    if output is Format.JSON:
        print_json({"removed": removed})
    else:
        what = f"{len(removed)} things removed" if removed else "there was nothing to remove"
        console.print(f"simulated rack is down: {what}", markup=False)


@app.command()
def status(env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Show the machines, their power and the injected faults. Exit code 1 when the rack is not up."""
    found = _rack(env).status()
    if output is Format.JSON:
        print_json(found)
    else:
        for row in found["machines"]:
            faulty = ", ".join(_words(item) for item in row.get("faults", []))
            console.print(f"{row['name']:12} {row['kind']:10} {row['address']:15} {row['state']:8} {faulty}".rstrip(), markup=False)
        console.print(f"rack: {'up' if found['up'] else 'not up: run `rackready sim up`'}", markup=False)
    raise typer.Exit(0 if found["up"] else 1)


@app.command()
def inject(  # noqa: PLR0913, PLR0917 - each is an option of the command
    node: Node,
    fault: Chosen,
    gpu: Gpu = None,
    nic: Nic = None,
    link: Link = None,
    port: Port = None,
    other: Other = None,
    severity: Severity = None,
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Break a node's hardware. Nothing else is told: gates have to find it."""
    params: dict[str, Any] = {"gpu": gpu, "nic": nic, "link": link, "port": port, "other": other}
    if severity is not None:
        params[_degree(fault)] = severity
    recorded = _rack(env).inject(node, fault, **{key: value for key, value in params.items() if value is not None})
    if output is Format.JSON:
        print_json({"node": node, "fault": recorded})
    else:
        console.print(f"{node}: {_words(recorded)} injected", markup=False)


@app.command()
def clear(node: Node, fault: Repaired = None, env: Env = "sim", output: Output = Format.TEXT) -> None:
    """Repair a node's hardware. Exit code 1 when it has no fault of that name."""
    cleared = _rack(env).clear(node, fault)
    if output is Format.JSON:
        print_json({"node": node, "cleared": cleared})
    else:
        console.print(f"{node}: {cleared} fault{'' if cleared == 1 else 's'} repaired", markup=False)
    raise typer.Exit(1 if fault and not cleared else 0)


@app.command()
def faults(output: Output = Format.TEXT) -> None:
    """List the faults that can be injected."""
    if output is Format.JSON:
        rows = [{"name": item.name, "layer": item.layer, "description": item.description, "params": item.params} for item in FAULTS.values()]
        print_json({"faults": rows})
        return
    for fault in FAULTS.values():
        takes = " ".join(f"{key}={value}" for key, value in fault.params.items())
        console.print(f"{fault.name:32} {fault.description}{f' ({takes})' if takes else ''}", markup=False)


def _degree(fault: str) -> str:
    takes = FAULTS[fault].params if fault in FAULTS else {}
    return next((name for name in _DEGREES if name in takes), "severity")


def _words(fault: dict[str, Any]) -> str:
    return " ".join([fault["name"], *(f"{key}={value}" for key, value in fault["params"].items())])
