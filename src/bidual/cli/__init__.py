"""The command line: one file per command, `app` with all of them, and signals."""
