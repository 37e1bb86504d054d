"""What several tests share: cases, tools, and scripts that tests run as processes."""
