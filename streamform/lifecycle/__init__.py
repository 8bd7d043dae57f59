"""From a diff to a running unit: stages, approvals, the gate, the journal, apply and stop."""
