"""Campaigns: phases over batches of nodes as durable workflows. The ledger is the record, the engine only drives."""
