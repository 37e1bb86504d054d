"""Oracles for the steepest sub-network of parallel networks (PR)."""
