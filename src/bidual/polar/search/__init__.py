"""Steep neurons by local search: lower bounds only."""
