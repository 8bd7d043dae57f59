"""`python -m streamform.cli`: the same as the console script."""

from streamform.cli.main import script

if __name__ == "__main__":
    script()
