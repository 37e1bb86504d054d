"""Model files, tables, networks of other frameworks, data sets."""
