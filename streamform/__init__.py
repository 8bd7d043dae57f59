"""streamform: streaming SQL models that are compiled, tested, diffed before they are deployed, and deployed."""

__version__ = "0.1.0"
__all__ = ["__version__"]
