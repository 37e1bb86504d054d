"""Self-contained HTML pages of fits, paths, certificates and reproductions."""

from bidual.reporting.making import report
from bidual.reporting.page import Report, check_page

__all__ = ["Report", "check_page", "report"]
