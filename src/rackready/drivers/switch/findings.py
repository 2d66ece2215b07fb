"""Findings of the comparison of switches, and of both ends of a cable, with the site."""

from __future__ import annotations

from rackready.model.finding_kinds import ErrorKind, FailKind, Kinds

_RUNBOOK = "docs/runbooks/fabric.md"
_LINK_DOWN = "docs/runbooks/link-down.md"
_BY = "the fabric phase"
_PLAN = "Run `rackready fabric --check` to see the difference, then `rackready fabric`."
_CABLE = "Check the cable, the transceiver and that the node is powered on."
_ENDS = f"Run `rackready fabric` again; if it stays, read both ends as {_RUNBOOK} says."

PORT_MISSING = FailKind(
    "switch-port-missing",
    "port not there",
    meaning="The site cables a node to a port that the switch does not list.",
    next_step=_CABLE,
    runbook=_LINK_DOWN,
    by=_BY,
)
PORT_VLAN = FailKind(
    "switch-port-vlan",
    "access VLAN",
    meaning="The port is in another VLAN than the site declares: the node does not reach its gateway.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
PORT_MTU = FailKind(
    "switch-port-mtu",
    "MTU",
    meaning="The MTU of the port, or of a rail's gateway, is not the declared one. A smaller one drops packets.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
PORT_OFF = FailKind(
    "switch-port-off",
    "port switched off",
    meaning="Somebody shut the port down. Its cable cannot have a link.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
ROCE_OFF = FailKind(
    "switch-roce-off",
    "RoCE",
    meaning="RoCE is off on the switch, or not lossless: it drops RDMA traffic under load.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
DSCP_TRUST = FailKind(
    "switch-dscp-trust",
    "trust",
    meaning="The switch does not read the class of a packet from its DSCP: RDMA traffic is in the wrong class.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
PFC = FailKind(
    "switch-pfc-priorities",
    "PFC priorities",
    meaning="The switch pauses other priorities than the site declares as lossless.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
DSCP_PRIORITY = FailKind(
    "switch-dscp-priority",
    "priority of DSCP {dscp}",
    meaning="The switch maps this DSCP to another priority than the site declares.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
LINK_DOWN = FailKind(
    "switch-link-down",
    "link to {end} (rail {rail})",
    meaning="The port of a cabled node has no link.",
    next_step=_CABLE,
    runbook=_LINK_DOWN,
    by=_BY,
)
TRUNK_DOWN = FailKind(
    "switch-trunk-down",
    "link to {end}",
    meaning="A cable between two switches has no link: the fabric has less capacity than planned, or no way across.",
    next_step="Check the cable and the transceivers, and that the switch at the far end is powered on.",
    runbook=_LINK_DOWN,
    by=_BY,
)
SESSION_DOWN = FailKind(
    "switch-session-down",
    "BGP session with {end}",
    meaning="The link is up, but the switches exchange no routes over it: traffic takes other links, or none.",
    next_step="Compare both switches with `rackready fabric --show SWITCH`, then run `rackready fabric` again.",
    runbook=_RUNBOOK,
    by=_BY,
)
NOT_ANNOUNCED = FailKind(
    "switch-prefix-not-announced",
    "prefix {prefix}",
    meaning="The switch's BGP sessions may be up, but it does not announce this loopback or rail: no traffic finds it.",
    next_step="On SONiC, run `sudo systemctl restart bgp` (sessions drop), then look at `sudo systemctl status bgp`.",
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_PFC = FailKind(
    "cable-pfc-differs",
    "PFC priorities differ",
    meaning="Node and switch pause different priorities: the cable is lossless in one direction only.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_TRUST = FailKind(
    "cable-trust-differs",
    "trust differs",
    meaning="Node and switch do not both read the class of a packet from its DSCP.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_DSCP = FailKind(
    "cable-dscp-differs",
    "DSCP {dscp}",
    meaning="Node and switch map a DSCP of a lossless priority differently: its packets are dropped under load.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
GLOBAL_PAUSE = FailKind(
    "cable-global-pause",
    "global pause",
    meaning="The node's NIC pauses all traffic of the cable, and not one priority as PFC does.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_MTU = FailKind(
    "cable-mtu-differs",
    "MTU",
    meaning="The node's MTU is not the declared one, or the switch's is smaller: full-size packets are dropped.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_ECN = FailKind(
    "cable-ecn-differs",
    "ECN",
    meaning="An end of the cable does not mark packets in congestion, or does not slow down for marks: PFC "
    "alone has to stop a burst, and pauses spread.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
WATCHDOG = FailKind(
    "switch-watchdog-off",
    "PFC watchdog",
    meaning="Nothing ends a pause storm on the port: one broken NIC can stop the whole fabric.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
ECN_THRESHOLDS = FailKind(
    "switch-ecn-thresholds",
    "ECN thresholds",
    meaning="The switch marks packets at another depth of its queues than its system does by itself, and the site sets "
    "no other: somebody changed it by hand.",
    next_step="Remove the change on the switch, or declare it in fabric.qos.ecn.",
    runbook=_RUNBOOK,
    by=_BY,
)
ADAPTIVE_OFF = FailKind(
    "switch-adaptive-routing-off",
    "adaptive routing",
    meaning="The port does not route adaptively: every next hop of a route must, or packets take unexpected paths.",
    next_step=_PLAN,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_SPEED = FailKind(
    "cable-speed-differs",
    "rate",
    meaning="The ends of the cable do not run at the planned rate, or not at the same one.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_FEC = FailKind(
    "cable-fec-differs",
    "FEC",
    meaning="The ends of the cable use another error correction than planned, or not the same: the link "
    "drops, or loses packets.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_TOS = FailKind(
    "cable-tos-differs",
    "ToS",
    meaning="The node sends RoCE data with another ToS than planned: switches put it into another class.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
ENDS_GID = FailKind(
    "cable-gid-differs",
    "GID",
    meaning="The node does not send RoCE v2 from the planned GID: RoCE v1 does not pass a router, and carries no DSCP.",
    next_step=_ENDS,
    runbook=_RUNBOOK,
    by=_BY,
)
INTERFACE_MISSING = FailKind(
    "cable-interface-missing",
    "not read",
    meaning="The node has no such interface, so this end of the cable could not be compared.",
    next_step="Check the NIC.",
    runbook="docs/runbooks/nic.md",
    by=_BY,
)
NODE_UNREAD = ErrorKind(
    "fabric-node-unread",
    "reading of its compute interfaces",
    meaning="The node's program that reads its interfaces returned no whole document.",
    next_step="Run `rackready fabric` for the node.",
    runbook=_RUNBOOK,
    by=_BY,
)
LLDP_UNREAD = ErrorKind(
    "lldp-unread",
    "reading of its neighbours by LLDP",
    meaning="The node does not tell what its compute interfaces see, so its cables could not be compared.",
    next_step="Check `systemctl status lldpd` on the node, then run `rackready fabric` for it.",
    runbook="docs/runbooks/lldp.md",
    by=_BY,
)
LLDP_PORT_UNNAMED = ErrorKind(
    "lldp-port-unnamed",
    "far end of its cable",
    meaning="The port hears a switch that could not be read, under a name that the site does not have. Such a switch "
    "sends aliases of its ports, so the cable could not be compared.",
    next_step="Make {switch} readable (its reason is in the warning), then run `rackready fabric` again.",
    runbook="docs/runbooks/lldp.md",
    by=_BY,
)
LLDP_SILENT = ErrorKind(
    "lldp-silent",
    "no neighbour on {count} of its cables",
    meaning="The switch was not read by LLDP, and nothing is heard at the other ends of these cables: they may be "
    "unplugged, or LLDP or the switch is off.",
    next_step="Make the switch readable, then run `rackready fabric` again: its own view tells which it is.",
    runbook="docs/runbooks/lldp.md",
    by=_BY,
)
NO_CABLE = ErrorKind(
    "fabric-no-cable",
    "no cable",
    meaning="The site declares no cable from this node to a switch: there is nothing to compare.",
    next_step="Add it to links.",
    runbook=_RUNBOOK,
    by=_BY,
)

FINDINGS: Kinds = (
    *(PORT_MISSING, PORT_VLAN, PORT_MTU, PORT_OFF, ROCE_OFF, DSCP_TRUST, PFC, DSCP_PRIORITY, LINK_DOWN),
    *(TRUNK_DOWN, SESSION_DOWN, NOT_ANNOUNCED, WATCHDOG, ECN_THRESHOLDS, ADAPTIVE_OFF),
    *(ENDS_PFC, ENDS_TRUST, ENDS_DSCP, GLOBAL_PAUSE, ENDS_MTU, ENDS_ECN, ENDS_SPEED, ENDS_FEC, ENDS_TOS, ENDS_GID),
    *(INTERFACE_MISSING, NODE_UNREAD, LLDP_UNREAD, LLDP_PORT_UNNAMED, LLDP_SILENT, NO_CABLE),
)
