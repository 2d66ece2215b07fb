"""nvidia-smi mig, and MIG mode: profiles, instances, creation and removal.

Table of profiles: a real H200 with driver 580 (tests/fixtures/captured/h200_vm/mig_lgip.txt). Table of instances and
the words of -cgi, -dci and -dgi: NVIDIA MIG user guide, "Getting started with MIG". With MIG off, -lgi ends with 0: a
real H100 with driver 580 (h100_vm/mig_lgi_none.txt). Exit code 6 and its words where there is no instance: public
outputs of driver 580; of -dci: GoogleCloudPlatform/container-engine-accelerators, pull request 444. Table of -lci:
openpbs/openpbs, src/hooks/cgroups/pbs_cgroups.PY. -dgi of an instance that has a compute instance: public outputs, and
the code of NVML_ERROR_IN_USE.
"""

from __future__ import annotations

import sys
import uuid
from typing import Any

from .. import store
from ..machine import Gpu

State = dict[str, Any]

_SLICES = 7
_MEMORY = 8
_IDS = {"1g": 19, "2g": 14, "3g": 9, "4g": 5, "7g": 0}
_ID_OF_WIDE_1G = 15
"""A slice with twice the memory, as 1g.35gb."""
_COMPUTE_IDS = {"1": 0, "2": 1, "3": 2, "4": 3, "7": 4}
_WIDE_COMPUTE_ID = 7
"""Compute instance profiles of nvml.h that take a whole GPU instance; 7: NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1."""
_SIZE = {"1g": 1, "2g": 2, "3g": 4, "4g": 4, "7g": 8}
_LINE = f"+{'-' * 55}+"
_WIDE = f"+{'-' * 79}+"
_COMPUTE = f"+{'-' * 68}+"
_NOT_FOUND = 6
_IN_USE = 19


def profiles(gpu: Gpu) -> dict[str, tuple[int, int, int]]:
    """Return profile to id, instances at most, and memory slices; empty if the GPU has no MIG."""
    found = {}
    for name, most in gpu.part.get("mig_profiles", {}).items():
        slices = name.partition(".")[0]
        wide = slices == "1g" and most < _SLICES
        found[name] = (_ID_OF_WIDE_1G if wide else _IDS[slices], int(most), 2 if wide else _SIZE[slices])
    return found


def mode(gpu: Gpu) -> str:
    """Return MIG mode in nvidia-smi's word: of a fault, or what software set."""
    if not gpu.part.get("mig_profiles"):
        return "[N/A]" if gpu.part["mig_mode"] == "Disabled" else str(gpu.part["mig_mode"])
    return "Enabled" if _runtime(gpu).get("on") or gpu.part["mig_mode"] == "Enabled" else "Disabled"


def set_mode(gpu: Gpu, value: str) -> tuple[int, str]:
    """Turn MIG mode on or off."""
    if value not in {"0", "1"}:
        return 2, f'"{value}" is not a valid MIG mode.\n'
    if not gpu.part.get("mig_profiles"):
        return 3, f"Unable to enable MIG Mode for GPU {gpu.bus_id}: Not Supported\n"
    if value == "0" and instances(gpu):
        return 255, f"Unable to disable MIG Mode for GPU {gpu.bus_id}: In use by another client\n"
    _store(gpu, on=value == "1")
    return 0, f"{'Enabled' if value == '1' else 'Disabled'} MIG Mode for GPU {gpu.bus_id}\n"


def main(argv: list[str], gpus: list[Gpu]) -> int:
    """Run `nvidia-smi mig`."""
    if "-i" in argv:
        wanted = argv[argv.index("-i") + 1].split(",")
        gpus = [gpu for gpu in gpus if str(gpu.index) in wanted]
    if "-lgip" in argv:
        return _list_profiles([gpu for gpu in gpus if profiles(gpu)])
    ready = [gpu for gpu in gpus if mode(gpu) == "Enabled"]
    if not ready:
        return _say("No MIG-enabled devices found.", 0 if {"-lgi", "-lci"} & set(argv) else _NOT_FOUND)
    options = {"-lgi": _list, "-lci": _list_compute, "-dci": _remove_compute, "-dgi": _remove}
    for option, act in options.items():
        if option in argv:
            return act(ready)
    if "-cgi" in argv:
        return max(_create(gpu, argv[argv.index("-cgi") + 1].split(","), compute="-C" in argv) for gpu in ready)
    return _say("Invalid combination of input arguments. Please run 'nvidia-smi mig -h' for help.", 2)


def _runtime(gpu: Gpu) -> State:
    found: State = store.runtime().get("mig", {}).get(gpu.part["uuid"], {})
    return found


def instances(gpu: Gpu) -> list[State]:
    """Return the GPU instances of a GPU."""
    return list(_runtime(gpu).get("instances", []))


def _store(gpu: Gpu, **values: object) -> None:
    with store.change() as runtime:
        runtime.setdefault("mig", {}).setdefault(gpu.part["uuid"], {}).update(values)


def _say(text: str, code: int = 0) -> int:
    sys.stdout.write(f"{text}\n")
    return code


def _list_profiles(gpus: list[Gpu]) -> int:
    if not gpus:
        return _say("No MIG-supported devices found.", _NOT_FOUND)
    rows = [_WIDE, f"| {'GPU instance profiles:':<78}|"]
    rows += ["| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |"]
    rows += ["|                                Free/Total   GiB              CE    JPEG  OFA  |", f"|{'=' * 79}|"]
    for gpu in gpus:
        for name, (number, most, _) in profiles(gpu).items():
            free = most - sum(item["name"] == name for item in instances(gpu))
            memory = float(name.partition(".")[2].removesuffix("gb"))
            head = f"|{gpu.index:>4}  MIG {name:<15}{number:>3}     {free}/{most}        {memory:<6.2f}"
            rows += [f"{head:<50}No     16     1     0   |", f"|{'1     1     0   ':>79}|", _WIDE]
    return _say("\n".join(rows))


def _list(gpus: list[Gpu]) -> int:
    found = [(gpu, item) for gpu in gpus for item in instances(gpu)]
    if not found:
        return _say("No GPU instances found: Not Found", _NOT_FOUND)
    rows = [_LINE, f"| {'GPU instances:':<54}|", f"| {'GPU   Name             Profile  Instance   Placement':<54}|"]
    rows += [f"|{'ID       ID       Start:Size ':>55}|", f"|{'=' * 55}|"]
    for gpu, item in found:
        place = f"{item['start']}:{item['size']}"
        rows += [f"|{gpu.index:>4}  MIG {item['name']:<15}{item['profile']:>4}{item['id']:>9}{place:>13}     |", _LINE]
    return _say("\n".join(rows))


def _list_compute(gpus: list[Gpu]) -> int:
    found = _with_compute(gpus)
    if not found:
        return _say("No compute instances found: Not Found", _NOT_FOUND)
    rows = [_COMPUTE, f"| {'Compute instances:':<67}|"]
    rows += [f"| {'GPU     GPU       Name             Profile   Instance   Placement':<67}|"]
    rows += [f"| {'      Instance                       ID        ID       Start:Size':<67}|"]
    rows += [f"| {'        ID':<67}|", f"|{'=' * 68}|"]
    for gpu, item in found:
        slices = item["name"].partition("g")[0]
        number = _WIDE_COMPUTE_ID if item["profile"] == _ID_OF_WIDE_1G else _COMPUTE_IDS[slices]
        head = f"|{gpu.index:>4}{item['id']:>7}       MIG {item['name']:<15}{number:>3}         0"
        rows += [f"{head}{f'0:{slices}':>13}     |", _COMPUTE]
    return _say("\n".join(rows))


def _with_compute(gpus: list[Gpu]) -> list[tuple[Gpu, State]]:
    return [(gpu, item) for gpu in gpus for item in instances(gpu) if item["compute"]]


def _create(gpu: Gpu, names: list[str], *, compute: bool) -> int:
    offered = profiles(gpu)
    for name in names:
        known = name if name in offered else next((key for key, item in offered.items() if str(item[0]) == name), "")
        if not known:
            return _say(f"Unable to create a GPU instance on GPU {gpu.index:>2}: Invalid profile {name}", 2)
        number, _, size = offered[known]
        there = instances(gpu)
        start = _place(there, size, gpu.part["mig_profiles"][known], sum(item["name"] == known for item in there))
        if start is None:
            _say(
                f"Unable to create a GPU instance on GPU {gpu.index:>2} using profile {number}: Insufficient Resources"
            )
            return _say("Failed to create GPU instances: Insufficient Resources", _NOT_FOUND)
        own = next(free for free in range(1, 16) if free not in {item["id"] for item in there})
        made = {"name": known, "profile": number, "id": own, "start": start, "size": size, "compute": compute}
        _store(gpu, instances=[*there, made])
        words = f"on GPU {gpu.index:>2} using profile MIG {known} (ID {number:>2})"
        _say(f"Successfully created GPU instance ID {own:>2} {words}")
        if compute:
            place = f"on GPU {gpu.index:>2} GPU instance ID {own:>2}"
            _say(f"Successfully created compute instance ID  0 {place} {words[11:]}")
    return 0


def _place(there: list[State], size: int, most: int, count: int) -> int | None:
    """Return the first free place; the smallest profile has seven places of eight."""
    taken = {slot for item in there for slot in range(item["start"], item["start"] + item["size"])}
    ends = _SLICES if size == 1 else _MEMORY
    free = (start for start in range(0, ends - size + 1, size) if not taken & set(range(start, start + size)))
    return next(free, None) if count < most else None


def _remove_compute(gpus: list[Gpu]) -> int:
    found = _with_compute(gpus)
    for gpu, item in found:
        _say(f"Successfully destroyed compute instance ID  0 from GPU {gpu.index:>2} GPU instance ID {item['id']:>2}")
    for gpu in gpus:
        _store(gpu, instances=[item | {"compute": False} for item in instances(gpu)])
    return 0 if found else _say("No compute instances found: Not Found", _NOT_FOUND)


def _remove(gpus: list[Gpu]) -> int:
    for gpu, item in _with_compute(gpus):
        _say(f"Unable to destroy GPU instance ID {item['id']:>2} from GPU {gpu.index:>2}: In use by another client")
        return _say("Failed to destroy GPU instances: In use by another client", _IN_USE)
    found = [(gpu, item) for gpu in gpus for item in instances(gpu)]
    for gpu, item in found:
        _say(f"Successfully destroyed GPU instance ID {item['id']:>2} from GPU {gpu.index:>2}")
    for gpu in gpus:
        _store(gpu, instances=[])
    return 0 if found else _say("No GPU instances found: Not Found", _NOT_FOUND)


def devices(gpu: Gpu) -> list[tuple[str, str]]:
    """Return profile and UUID of each MIG device of a GPU in their order, for other programs."""
    return [(item["name"], _uuid(gpu, item)) for _, item in _with_compute([gpu])]


def _uuid(gpu: Gpu, item: State) -> str:
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, '/'.join((gpu.part['uuid'], str(item['id']), item['name'])))}"
