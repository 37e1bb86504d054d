"""Exact oracles: all faces, corners or planes of the arrangement."""
