"""The published figures and tables, reproduced."""
