"""One view a file: text, JSON and markdown of each value. Nothing here computes; nothing here prints."""
