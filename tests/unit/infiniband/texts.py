"""Outputs of infiniband-diags 44.0 and opensm 3.3.23 on ibsim 0.10, cut; and the shapes of a real NDR fabric."""

NETWORK = """\
#
# Topology file: generated on Fri Aug  8 06:33:24 2025
#
# Initiated from node 0000000000002000 port 0000000000002001

vendid=0x2c9
devid=0xd2f2
sysimgguid=0x1000
switchguid=0x1000(1000)
Switch\t65 "S-0000000000001000"\t\t# "MF0;leaf01:MQM9700/U1" enhanced port 0 lid 2 lmc 0
[1]\t"H-0000000000002000"[1](2001) \t\t# "node01 mlx5_0" lid 1 4xNDR
[64]\t"S-0000000000001001"[1]\t\t# "MF0;spine01:MQM9700/U1" lid 3 4xNDR
[65]\t"H-0000000000001008"[1](1008) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xNDR

vendid=0x2c9
devid=0xd2f2
sysimgguid=0x1001
switchguid=0x1001(1001)
Switch\t65 "S-0000000000001001"\t\t# "MF0;spine01:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]\t"S-0000000000001000"[64]\t\t# "MF0;leaf01:MQM9700/U1" lid 2 4xNDR

vendid=0x2c9
devid=0xcf09
sysimgguid=0x1000
caguid=0x1008
Ca\t1 "H-0000000000001008"\t\t# "Mellanox Technologies Aggregation Node"
[1](1008) \t"S-0000000000001000"[65]\t\t# lid 9 lmc 0 "MF0;leaf01:MQM9700/U1" lid 2 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x2000
caguid=0x2000
Ca\t1 "H-0000000000002000"\t\t# "node01 mlx5_0"
[1](2001) \t"S-0000000000001000"[1]\t\t# lid 1 lmc 0 "MF0;leaf01:MQM9700/U1" lid 2 4xNDR s=4 w=2 v=3
"""

LINKS = """\
0x0000000000001001 "        MF0;spine01:MQM9700/U1"      3    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  \
0x0000000000001000      2    4[  ] "MF0;leaf01:MQM9700/U1" (Could be 12X )
0x0000000000001001 "        MF0;spine01:MQM9700/U1"      3    2[  ] ==(                Down/ Polling)==>  \
           [  ] "" ( )
"""

ERRORS = """\
Errors for "node01 mlx5_0"
   GUID 0x2001 port 1: [SymbolErrorCounter == 100]

## Summary: 4 nodes checked, 1 bad nodes found
##          10 ports checked, 1 ports have errors beyond threshold
## Thresholds:\x20
## Suppressed:
"""

COUNTERS = """\
# Port extended counters: Lid 2 port 1 (CapMask: 0x1300 CapMask2: 0x0000000)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................12456
PortRcvData:.....................12528
PortXmitPkts:....................173
PortRcvPkts:.....................174
"""

PORT = """\
# Port info: Lid 1 port 1
Mkey:............................<not displayed>
Lid:.............................1
LinkWidthActive:.................4X
LinkState:.......................Active
PhysLinkState:...................LinkUp
LinkSpeedActive:.................10.0 Gbps
NeighborMTU:.....................2048
LinkSpeedExtActive:..............53.125 Gbps
"""

KEYS = """\
   0: 0x7fff 0x8011 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
   8: 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000
16 pkeys capacity for this port
"""

MANAGER = "sminfo: sm lid 1 sm guid 0x2001, activity count 52 priority 0 state 3 SMINFO_MASTER\n"

LOG = """\
Nov 27 06:52:11 100000 [284D1740] 0x03 -> OpenSM 3.3.23
Nov 27 06:52:11 100001 [284D1740] 0x80 -> OpenSM 3.3.23
Nov 27 06:52:11 145948 [284D16C0] 0x02 -> osm_ucast_mgr_process: updn tables configured on all switches
Nov 27 06:52:11 145950 [284D16C0] 0x02 -> SUBNET UP
"""

FELL_BACK = """\
Nov 27 06:52:12 100000 [74F31740] 0x80 -> OpenSM 3.3.23
Nov 27 06:52:12 207270 [74F31740] 0x01 -> setup_routing_engine: cannot find or setup routing engine 'ar_updn'
Nov 27 06:52:40 953379 [58BD66C0] 0x01 -> parse_part_conf: PARSE ERROR: line 3: no partition definition found
Nov 27 06:52:40 953385 [58BD66C0] 0x01 -> osm_prtn_make_partitions: Partition configuration in error; \
retrying with default config
Nov 27 06:52:12 302043 [71F2A6C0] 0x02 -> osm_ucast_mgr_process: minhop tables configured on all switches
Nov 27 06:52:12 302050 [71F2A6C0] 0x02 -> SUBNET UP
"""
