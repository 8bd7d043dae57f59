"""The plan diff: what changing from the running plan to the desired one costs, node by node, with the rule that says so."""
