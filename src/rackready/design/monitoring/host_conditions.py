"""Conditions of nodes, rails, switches and racks."""

from __future__ import annotations

from rackready.design.monitoring.condition import AWAY, KNOWN, NODE, Act, Condition, Record, Scope, Severity
from rackready.design.monitoring.counters import NODE_SOURCE

_UFM = "Mellanox/ufm_sdk_3.0 @3e96418e, plugins/pdr_deterministic_plugin"
_RAIL = f"on ({NODE}, device) group_left (rail, switch, switch_port) rackready_rail_info"
"""Keeps planned rails alone, and adds their labels."""
_CABLE = "See docs/runbooks/link-down.md."
_RUNS = "`rackready validate --limit NODE` measures it."
_RACK = "site, rack, unit"
_ALL = 'job=~"node|dcgm|switch"'
_FULL_ERRORS, _FULL_DOWNED = 65535, 255
"""Most that the kernel's files counters/symbol_error (16 bits) and counters/link_downed (8 bits) hold: Linux
drivers/infiniband/core/sysfs.c, PORT_PMA_ATTR, and mlx5's register, include/linux/mlx5/mlx5_ifc.h. They stay there.
Equal, not more: a driver with wider counters would pass these values."""
_BOOTED_S = 3900
"""Longer than the hour in which alerts on counters see what a boot did to them: this alert silences those."""
ERRORS = "rail:symbol_errors:ratio_increase125m"

HOST_RECORDS = (
    Record(
        ERRORS,
        "increase(node_infiniband_symbol_error_total[125m]) / (125 * 60 * 8 * node_infiniband_rate_bytes_per_second)",
        "errors/bit",
        "symbol errors for each bit that the link could carry in 125 min",
    ),
    Record(
        "rail:received:rate5m",
        f"rate(node_infiniband_port_data_received_bytes_total[5m]) * {_RAIL}",
        "byte/s",
        "bytes that a planned rail receives",
    ),
    Record(
        "rail:transmitted:rate5m",
        f"rate(node_infiniband_port_data_transmitted_bytes_total[5m]) * {_RAIL}",
        "byte/s",
        "bytes that a planned rail sends",
    ),
    Record(
        "rack:targets_up:ratio",
        f"avg by (site, rack, unit) (up{{{_ALL}}})",
        "ratio",
        "share of a rack's targets that answer",
    ),
)

HOST_CONDITIONS = (
    Condition(
        id="RackUnreachable",
        severity=Severity.CRITICAL,
        scope=Scope.RACK,
        meaning="Nothing in the rack answers: it has no power, or its management switch is down.",
        expr='rack:targets_up:ratio{rack!=""} == 0 '
        f"unless on ({_RACK}) (count by ({_RACK}) (count by ({NODE}) ({AWAY})) "
        f"== count by ({_RACK}) (count by ({NODE}) ({KNOWN})))",
        unit="ratio",
        expected="1",
        actual="{{ $value }}: no node and no switch of the rack answers",
        next_step="Look at the rack's power feeds and at its management switch first.",
        source="our judgement: one cause, one alert",
        for_s=60,
    ),
    Condition(
        id="NodeUnreachable",
        severity=Severity.CRITICAL,
        scope=Scope.NODE,
        meaning="node_exporter of the node does not answer: the node, its network or the exporter is down.",
        expr=f'up{{job="node"}} == 0 unless on ({NODE}) {AWAY}',
        unit="boolean",
        expected="1",
        actual="{{ $value }}",
        next_step="Ask its BMC for power state and console. See docs/runbooks/quarantined-node.md.",
        source="Prometheus: up",
        for_s=180,
    ),
    Condition(
        id="NodeRebooted",
        severity=Severity.INFO,
        scope=Scope.NODE,
        meaning="The node booted in the last hour. That explains counters that started again from zero.",
        expr=f'time() - node_boot_time_seconds{{job="node"}} < {_BOOTED_S}',
        unit="s",
        expected="no boot that nobody asked for",
        actual="booted {{ $value | humanizeDuration }} ago",
        next_step="If nobody rebooted it: read the BMC's event log and the last lines of the kernel log.",
        source=f"{NODE_SOURCE}; changes() would not do: the value moves by a second when the clock is set",
        watch=Act.RECORD,
    ),
    Condition(
        id="NodeMemoryUncorrected",
        severity=Severity.CRITICAL,
        scope=Scope.NODE,
        meaning="The node's main memory lost data.",
        expr=f'sum by ({NODE}) (increase(node_edac_uncorrectable_errors_total{{job="node"}}[1h])) >= 1',
        unit="errors in 1 h",
        expected="none",
        actual="{{ $value | humanize }} in 1 h",
        next_step="Drain the node; the BMC's event log names the module. Replace it.",
        source=f"{NODE_SOURCE}, edac_linux.go",
        watch=Act.DRAIN,
    ),
    Condition(
        id="NodeClockNotSynchronised",
        severity=Severity.WARNING,
        scope=Scope.NODE,
        meaning="The node's clock is not synchronised: its logs and measurements carry wrong times.",
        expr='node_timex_sync_status{job="node"} == 0',
        unit="boolean",
        expected="1",
        actual="{{ $value }}",
        next_step="On the node: `chronyc sources`. Run `rackready drift --limit NODE`.",
        source=f"{NODE_SOURCE}, timex.go",
        for_s=600,
    ),
    Condition(
        id="RailDown",
        severity=Severity.CRITICAL,
        scope=Scope.RAIL,
        meaning="A planned rail of the node has no link.",
        expr=f"(node_infiniband_state_id != 4) * {_RAIL}",
        unit="state",
        expected="4 (active)",
        actual="{{ $value }} (1: down, 2: init, 3: armed)",
        next_step=_CABLE,
        source=f"{NODE_SOURCE}, infiniband_linux.go; the site's links",
        for_s=60,
        watch=Act.DRAIN,
    ),
    Condition(
        id="RailMissing",
        severity=Severity.CRITICAL,
        scope=Scope.RAIL,
        meaning="The node has no device for a planned rail: the NIC left the bus, or has another name.",
        expr=f"rackready_rail_info unless on ({NODE}, device) node_infiniband_state_id "
        f'and on ({NODE}) up{{job="node"}} == 1',
        unit="boolean",
        expected="an RDMA device of this name",
        actual="none",
        next_step="See docs/runbooks/nic.md.",
        source=f"{NODE_SOURCE}, infiniband_linux.go; the site's links",
        for_s=300,
        watch=Act.DRAIN,
    ),
    Condition(
        id="RailSlow",
        severity=Severity.CRITICAL,
        scope=Scope.RAIL,
        meaning="A rail runs below its planned rate; every collective waits for it.",
        expr="node_infiniband_rate_bytes_per_second "
        f"< on ({NODE}, device) group_left (rail, switch, switch_port) rackready_rail_rate_bytes_per_second "
        f"and on ({NODE}, device) node_infiniband_state_id == 4",
        unit="byte/s",
        expected="the planned rate",
        actual="{{ $value | humanize }}B/s",
        next_step="See docs/runbooks/rail-slow.md.",
        source=f"{NODE_SOURCE}, infiniband_linux.go; the site's links",
        for_s=120,
        watch=Act.DRAIN,
    ),
    Condition(
        id="RailFlapping",
        severity=Severity.WARNING,
        scope=Scope.RAIL,
        meaning="The link of a planned rail went down and came back.",
        expr=f"(increase(node_infiniband_link_downed_total[1h]) >= 1) * {_RAIL}",
        unit="events in 1 h",
        expected="none",
        actual="{{ $value | humanize }} in 1 h",
        next_step=f"Clean and reseat both ends; if it returns, replace the cable. {_CABLE}",
        source=f"{NODE_SOURCE}, infiniband_linux.go; {_UFM}: a link went down if LinkDowned grew",
        watch=Act.TICKET,
    ),
    Condition(
        id="RailSymbolErrors",
        severity=Severity.WARNING,
        scope=Scope.RAIL,
        meaning="The link makes more bit errors than a good cable: cable, module or a port is bad.",
        expr=f"({ERRORS} > 1e-15) * {_RAIL}",
        unit="errors/bit",
        expected="at most 1e-15",
        actual="{{ $value }} over 125 min",
        next_step=f"{_RUNS} {_CABLE}",
        source=f"{_UFM}: 3 symbol errors in 125 min at 400 Gb/s",
    ),
    Condition(
        id="RailCounterFull",
        severity=Severity.WARNING,
        scope=Scope.RAIL,
        meaning="An error counter of a planned rail is full: RailSymbolErrors or RailFlapping stay silent, whatever "
        "happens.",
        expr=f"(node_infiniband_symbol_error_total == {_FULL_ERRORS} "
        f"or node_infiniband_link_downed_total == {_FULL_DOWNED}) * {_RAIL}",
        unit="errors or events",
        expected=f"fewer than {_FULL_ERRORS} symbol errors and {_FULL_DOWNED} losses of the link",
        actual="{{ $value }}",
        next_step=f"Clear the counters of the port (on InfiniBand `perfquery -R`), and see whether they grow. {_CABLE}",
        source="InfiniBand specification, PortCounters: they stop at their maximum; "
        "linux-rdma/opensm, doc/performance-manager-HOWTO.txt",
        for_s=600,
    ),
    Condition(
        id="SwitchUnreachable",
        severity=Severity.CRITICAL,
        scope=Scope.SWITCH,
        meaning="The exporter of the switch does not answer: it, the switch or the management network is down.",
        expr='up{job="switch"} == 0',
        unit="boolean",
        expected="1",
        actual="{{ $value }}",
        next_step="Look at the rails that end at it: with link, the switch lives. See docs/runbooks/fabric.md.",
        source="Prometheus: up",
        for_s=180,
    ),
)
