"""Nodes that watch drained while another command had the lock: their faults are known before they are on record."""

from __future__ import annotations

import time

from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.watch.drain_faulty import unrecorded_faults
from rackready.watch.store import Seen, WatchStore
from tests.unit.watch.world import World


def test_a_drained_node_is_faulty_until_it_is_recorded_or_comes_into_production_again(world: World) -> None:
    with Ledger.open(world.paths.database) as ledger:
        assert "node02" not in unrecorded_faults(ledger)
        store = WatchStore.open(ledger)
        seen = Seen("node02", "gpu-xid", "gpu4", "Xid 79", "drain", at=time.time())
        (fault,) = store.record([seen], {"node02": 1})
        assert unrecorded_faults(ledger) == {}
        store.put(fault, drained_at=time.time() + 1)
        assert unrecorded_faults(ledger) == {"node02": "gpu-xid: node02 gpu4: Xid 79"}
        store.put(fault, quarantined=True)
        assert unrecorded_faults(ledger) == {}
        store.put(fault, quarantined=False)
        ledger.set_state("node02", NodeState.QUARANTINED, "gpu-xid")
        assert unrecorded_faults(ledger) == {}
