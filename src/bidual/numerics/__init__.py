"""Arithmetic and linear algebra, without networks."""
