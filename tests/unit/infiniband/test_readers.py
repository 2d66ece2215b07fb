"""Readers of the diagnostics: what they read, and that nothing unknown, cut off or empty passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackready.drivers.ib.counters import read_ibqueryerrors, read_perfquery
from rackready.drivers.ib.discover import read_ibnetdiscover
from rackready.drivers.ib.linkinfo import read_iblinkinfo
from rackready.drivers.ib.opensm_log import judge_opensm, read_opensm_log
from rackready.drivers.ib.smp import read_pkeys, read_portinfo, read_sminfo
from rackready.drivers.ib.text import IbTextError
from tests.unit.infiniband import texts


def test_ibnetdiscover_gives_nodes_ports_and_links() -> None:
    fabric = read_ibnetdiscover(texts.NETWORK)
    leaf, node = fabric.nodes[0x1000], fabric.nodes[0x2000]
    assert (leaf.type, leaf.description, leaf.size, leaf.lid) == ("switch", "MF0;leaf01:MQM9700/U1", 65, 2)
    assert (node.type, node.ports[1].guid, node.ports[1].lid, node.ports[1].rate) == ("ca", 0x2001, 1, 400)
    assert [(a.guid, p.number, b.guid, q.number) for a, p, b, q in fabric.links()] == [
        (0x1000, 1, 0x2000, 1),
        (0x1000, 64, 0x1001, 1),
        (0x1000, 65, 0x1008, 1),
    ]


def test_other_tools_give_their_values() -> None:
    up, down = read_iblinkinfo(texts.LINKS)
    assert (up.guid, up.port, up.state, up.width, up.speed, up.rate) == (0x1001, 1, "Active", 4, "HDR", 200)
    assert (up.far_guid, up.far_port, up.could_be) == (0x1000, 4, "Could be 12X")
    assert (down.state, down.physical, down.rate, down.far_name) == ("Down", "Polling", 0, "")
    report = read_ibqueryerrors(texts.ERRORS)
    assert [(port.node, port.guid, port.port, port.counters) for port in report.errors] == [
        ("node01 mlx5_0", 0x2001, 1, {"SymbolErrorCounter": 100})
    ]
    assert (report.nodes, report.ports, report.failed) == (4, 10, 0)
    counters = read_perfquery(texts.COUNTERS)
    assert (counters["PortXmitData"], counters["PortRcvPkts"]) == (12456 * 4, 174)
    port = read_portinfo(texts.PORT)
    assert (port.lid, port.state, port.width, port.speed, port.rate, port.mtu) == (1, "Active", 4, "HDR", 200, 2048)
    assert read_portinfo(texts.PORT.replace("53.125 Gbps", "No Extended Speed")).speed == "QDR"
    assert read_portinfo(texts.PORT.replace("Active\n", "Down\n", 1)).rate == 0
    assert read_pkeys(texts.KEYS) == {0x7FFF, 0x8011}
    manager = read_sminfo(texts.MANAGER)
    assert (manager.guid, manager.priority, manager.state) == (0x2001, 0, "MASTER")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_ibnetdiscover, ""),
        (read_ibnetdiscover, texts.NETWORK.split("vendid", maxsplit=1)[0]),
        (read_ibnetdiscover, texts.NETWORK.rsplit("[1]", maxsplit=1)[0]),
        (read_ibnetdiscover, texts.NETWORK.replace("4xNDR s=4", "4xQQQ s=4")),
        (read_ibnetdiscover, texts.NETWORK.replace("[64]", "[66]")),
        (read_ibnetdiscover, texts.NETWORK.replace("[64]", "[1]")),
        (read_ibnetdiscover, texts.NETWORK.replace("caguid=0x2000", "caguid=0x2002")),
        (read_ibnetdiscover, texts.NETWORK.replace("vendid=0x2c9", "vendor=0x2c9")),
        (read_ibnetdiscover, texts.NETWORK + texts.NETWORK),
        (read_iblinkinfo, ""),
        (read_iblinkinfo, texts.LINKS.replace("53.125", "99.9")),
        (read_iblinkinfo, texts.LINKS.replace("Active", "Down")),
        (read_iblinkinfo, "ibwarn: discovery failed\n"),
        (read_ibqueryerrors, ""),
        (read_ibqueryerrors, texts.ERRORS.split("##", maxsplit=1)[0]),
        (read_ibqueryerrors, texts.ERRORS.replace("10 ports checked, 1", "10 ports checked, 2")),
        (read_ibqueryerrors, "Query SA failed: Connection timed out; sa call path_query failed\n"),
        (read_perfquery, ""),
        (read_perfquery, texts.COUNTERS.replace("PortXmitPkts", "Packets")),
        (read_perfquery, "perfquery: iberror: failed\n"),
        (read_portinfo, ""),
        (read_portinfo, texts.PORT.replace("Active\n", "Sleeping\n", 1)),
        (read_portinfo, texts.PORT.replace("53.125", "99.9")),
        (read_portinfo, texts.PORT.replace("4X", "??")),
        (read_pkeys, ""),
        (read_pkeys, texts.KEYS.replace("   8:", "  16:")),
        (read_pkeys, "\n".join(texts.KEYS.splitlines()[::2])),
        (read_pkeys, texts.KEYS.rsplit("16 pkeys", maxsplit=1)[0]),
        (read_sminfo, ""),
        (read_sminfo, "sminfo: iberror: failed: query\n"),
        (read_opensm_log, ""),
        (read_opensm_log, "opensm: not installed\n"),
    ],
)
def test_unknown_cut_off_and_empty_texts_are_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(IbTextError, match=r"Expected: .* Actual: "):
        read(text)


def test_opensm_is_judged_by_its_log_since_its_last_start() -> None:
    assert judge_opensm("node01", read_opensm_log(texts.FELL_BACK + texts.LOG), "updn") == []
    found = judge_opensm("node01", read_opensm_log(texts.LOG + texts.FELL_BACK), "ar_updn")
    assert [(item.code, item.actual) for item in found] == [
        ("ib-routing-engine", "minhop"),
        ("ib-partitions-discarded", "discarded: line 3: no partition definition found"),
    ]
    started = texts.LOG.splitlines()[0]
    found = judge_opensm("node01", read_opensm_log(started), "updn")
    assert [(item.code, item.actual) for item in found] == [
        ("ib-subnet-not-up", "not reported since the last start"),
        ("ib-routing-engine", "no tables configured"),
    ]
    broken = f"{texts.LOG}Nov 27 06:53:11 1 [284D16C0] 0x80 -> Errors during initialization\n"
    found = judge_opensm("node01", read_opensm_log(broken), "updn")
    assert [(item.code, item.actual) for item in found] == [("ib-subnet-not-up", "errors in the last sweep")]
    assert judge_opensm("node01", read_opensm_log(broken + texts.LOG.splitlines()[-1]), "updn") == []
