"""One module per command; each talks to the REST API like any client."""


def main() -> None:
    """Run the command line."""
