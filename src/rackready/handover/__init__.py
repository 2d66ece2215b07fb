"""Handover to the scheduler: the policy, certificates, the handover itself, and nodes in production."""
