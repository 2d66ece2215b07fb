"""Faults of NICs, their settings, their links and switches."""

from __future__ import annotations

from collections.abc import Callable

from rackready_sim.faults.base import NIC, Fault, FaultError, State, part


def _nic_down(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["link"] = "down"


def _nic_slow(state: State, nic: int, factor: float) -> None:
    part(state, "nics", nic, "rail")["factor"] = factor


def _nic_rate(state: State, nic: int, rate: int) -> None:
    part(state, "nics", nic, "rail")["rate_gbps"] = rate


def _rail_idle(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["idle"] = True


def _rail_unseen(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["unseen"] = True


def _latency(state: State, nic: int, microseconds: float) -> None:
    part(state, "nics", nic, "rail")["latency_us"] = microseconds


def _roce_v1(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["roce_v1_only"] = True


def _path_mtu(state: State, nic: int, mtu: int) -> None:
    part(state, "nics", nic, "rail")["path_mtu"] = mtu


def _traffic_class(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["traffic_class_ignored"] = True


def _link_type(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["nv"]["LINK_TYPE_P1"] = 1


def _reset_refused(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["reset_refused"] = True


def _locked(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["nv_locked"] = True


def _no_cnp(state: State, nic: int) -> None:
    part(state, "nics", nic, "rail")["cnp_off"] = True


def _swapped(state: State, nic: int, other: int) -> None:
    if nic == other:
        raise FaultError(
            "cables-swapped", expected="two rails", actual=f"{nic} twice", next_step="Name another rail with --other."
        )
    one, two = part(state, "nics", nic, "rail"), part(state, "nics", other, "rail")
    one["crossed"], two["crossed"] = other, nic


def _wrong_port(state: State, nic: int, spare: str) -> None:
    found = part(state, "nics", nic, "rail")
    found["plugged"] = [found["switch"], spare]


def _names(state: State) -> None:
    state["rdma_names"] = "pci"


def _gdr_off(state: State) -> None:
    state["gpudirect"] = False


def _sockets(state: State) -> None:
    state.setdefault("nccl", {})["NCCL_NET"] = "Socket"


def _port_counts(counter: str) -> Callable[[State, int, int], None]:
    """Return the fault of a port that raises this counter whenever it carries data."""

    def apply(state: State, nic: int, count: int) -> None:
        state["host"]["under_load"].setdefault("nic", {})[part(state, "nics", nic, "rail")["rdma_device"]] = {
            counter: count
        }

    return apply


def _p2p_off(state: State) -> None:
    state.setdefault("nccl", {})["NCCL_P2P_DISABLE"] = "1"


def _nvls_off(state: State) -> None:
    state["fabric_manager"]["multicast"] = False


def _port(state: State, port: str) -> State:
    if "ports" not in state:
        raise FaultError(
            f"{state.get('node', 'machine')} ports", expected="a switch", actual="a node", next_step="Name a switch."
        )
    found: State | None = state["ports"].get(port)
    if found is None:
        raise FaultError(
            f"{state['switch']} ports",
            expected=f"a port of {state['model']}",
            actual=port,
            next_step=f"Name one such as {next(iter(state['ports']))}.",
        )
    return found


def _port_slow(state: State, port: str, factor: float) -> None:
    _port(state, port)["factor"] = factor


def _port_errors(state: State, port: str, share: float) -> None:
    _port(state, port)["error_share"] = share


def _port_pfc(state: State, port: str) -> None:
    _port(state, port)["pfc_off"] = True


def _ecn_off(state: State) -> None:
    if "ports" not in state:
        raise FaultError(
            f"{state.get('node', 'machine')} ECN", expected="a switch", actual="a node", next_step="Name a switch."
        )
    state["ecn_off"] = True


def _trunk_down(state: State, port: str) -> None:
    cable = state.get("cables", {}).get(port, {})
    if "switch" not in cable:
        known = ", ".join(name for name, one in state.get("cables", {}).items() if "switch" in one) or "none"
        raise FaultError(
            f"{state.get('switch', state.get('node', 'machine'))} cables to switches",
            expected=f"one of {known}",
            actual=port,
            next_step="Name a port with a cable to another switch.",
        )
    cable["link"] = "down"


def _switch_off(state: State) -> None:
    if "ports" not in state:
        raise FaultError(
            f"{state.get('node', 'machine')} power", expected="a switch", actual="a node", next_step="Name a switch."
        )
    state["power"] = "off"


_BW = "pair/fabric/performance/ib-write-bw"
_LAT = "pair/fabric/performance/ib-write-lat"
_RING = "cluster/fabric/performance/nccl-all-reduce-ring"
_NODE = "node/gpu/performance/nccl-all-reduce"
_INCAST = "cluster/fabric/stress/incast"
_SWP: dict[str, int | float | str] = {"port": "swp1"}

FAULTS = (
    Fault("nic-down", "fabric", "the cable of a rail is unplugged", _nic_down, NIC, _BW),
    Fault("nic-slow", "fabric", "a NIC carries a fraction of its rate", _nic_slow, {"nic": 1, "factor": 0.5}, _BW),
    Fault("nic-rate", "fabric", "a link trained at a lower rate, Gb/s", _nic_rate, {"nic": 1, "rate": 200}, _BW),
    Fault("nic-latency", "fabric", "a NIC answers late, microseconds", _latency, {"nic": 1, "microseconds": 4.0}, _LAT),
    Fault(
        "nic-discards",
        "fabric",
        "a NIC drops some of the packets that it should send",
        _port_counts("port_xmit_discards"),
        {"nic": 1, "count": 3120},
        _BW,
    ),
    Fault(
        "nic-receive-errors",
        "optics",
        "some packets reach a NIC damaged",
        _port_counts("port_rcv_errors"),
        {"nic": 1, "count": 41},
        _BW,
    ),
    Fault("nic-roce-v1", "fabric", "a NIC offers its address with RoCE v1 only", _roce_v1, NIC, _BW),
    Fault(
        "nic-path-mtu",
        "fabric",
        "the RDMA path MTU of a NIC is too small, bytes",
        _path_mtu,
        {"nic": 1, "mtu": 1024},
        _BW,
    ),
    Fault(
        "nic-traffic-class",
        "fabric",
        "a NIC sends RoCE data with DSCP 0, whatever its settings",
        _traffic_class,
        NIC,
        _INCAST,
    ),
    Fault("nic-no-cnp", "fabric", "a NIC sends no congestion notifications for marked packets", _no_cnp, NIC, _INCAST),
    Fault("nic-link-type", "nic", "a NIC works as InfiniBand, as it left the factory", _link_type, NIC),
    Fault("nic-reset-refused", "nic", "a NIC refuses a reset: only a boot brings new parameters", _reset_refused, NIC),
    Fault("nic-parameters-locked", "nic", "a NIC keeps its parameters, whatever is written", _locked, NIC),
    Fault(
        "rdma-names", "nic", "the system names RDMA devices by PCI address, rdma-core's default", _names, at_boot=True
    ),
    Fault("rail-idle", "fabric", "NCCL lists a NIC of a rail and sends nothing over it", _rail_idle, NIC, _RING),
    Fault(
        "rail-unseen",
        "fabric",
        "NCCL does not find the NIC of a rail and continues without a message",
        _rail_unseen,
        NIC,
        _RING,
    ),
    Fault(
        "cables-swapped",
        "cable",
        "the cables of two rails are swapped at the node",
        _swapped,
        {"nic": 1, "other": 2},
        _BW,
    ),
    Fault(
        "cable-wrong-port",
        "cable",
        "the cable of a rail is plugged into a spare port of its switch",
        _wrong_port,
        {"nic": 1, "spare": "swp60"},
        _BW,
    ),
    Fault(
        "gpudirect-off",
        "pcie",
        "NICs cannot reach GPU memory: PCIe access control redirects, no peer memory, no dma-buf",
        _gdr_off,
        {},
        _BW,
    ),
    Fault("nccl-sockets", "fabric", "somebody left NCCL_NET=Socket in NCCL's configuration", _sockets, {}, _RING),
    Fault("nccl-p2p-off", "nvlink", "somebody left NCCL_P2P_DISABLE=1 in NCCL's configuration", _p2p_off, {}, _NODE),
    Fault("nvls-off", "nvlink", "the NVSwitches do not reduce: no multicast", _nvls_off, {}, _NODE),
    Fault(
        "port-slow", "switch", "a switch port forwards a fraction of its rate", _port_slow, {**_SWP, "factor": 0.5}, _BW
    ),
    Fault(
        "port-errors",
        "switch",
        "a switch port drops a share of what it receives as damaged",
        _port_errors,
        {**_SWP, "share": 0.0001},
        _INCAST,
    ),
    Fault("port-pfc-off", "switch", "a switch port sends no pause frames in the RoCE class", _port_pfc, _SWP, _INCAST),
    Fault(
        "trunk-down", "underlay", "the cable between two switches is pulled at a port", _trunk_down, {"port": "swp9s0"}
    ),
    Fault("switch-off", "underlay", "a switch has no power", _switch_off, {}),
    Fault("switch-ecn-off", "switch", "a switch marks no packets in congestion", _ecn_off, {}, _INCAST),
)
