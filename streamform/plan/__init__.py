"""The plan: nodes with stable ids, what kind of changes each emits, the clock each follows and the state each keeps."""
