"""How neurons are chosen."""
