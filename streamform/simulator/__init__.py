"""The deterministic simulator: fixtures through the operators of runtime/."""
