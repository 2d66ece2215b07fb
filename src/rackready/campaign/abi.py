"""The version of the workflows' shape. A pending campaign of another version is not resumed but continued from the ledger."""

CAMPAIGN_ABI = "1"
"""Raise it whenever ``workflow.py`` changes the order or the arguments of its steps (tests/unit/campaign compares them)."""
