"""Provisioning: Pulumi components, their arguments, and our own Pulumi provider."""
