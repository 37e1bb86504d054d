"""Files, memory, threads, jobs, ranks and optional packages."""
