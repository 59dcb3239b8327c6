"""The report as one HTML page, as Markdown, and as data files."""
