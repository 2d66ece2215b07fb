"""The version of the workflow's steps. A campaign cut off under another version is continued from the ledger."""

CAMPAIGN_ABI = "2"
"""Raise it when ``workflow.py`` changes the order or arguments of its steps (tests/unit/campaign compares them)."""
