"""The embedded backend's pure half: how events are read, and how rows, keys and state are written down."""
