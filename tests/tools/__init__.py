"""Scripts that make files which are kept in the repository."""
