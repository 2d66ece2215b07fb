"""Who may be handed to the scheduler, and why: policy, certificates, the handover itself."""
