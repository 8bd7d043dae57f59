"""From files on disk to a frozen Project, or to diagnostics that name file, line and column."""
