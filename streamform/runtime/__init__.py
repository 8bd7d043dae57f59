"""The operators that the simulator and the embedded backend both run."""
