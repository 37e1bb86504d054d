"""Random arguments and broken files."""
