"""The command line: turns arguments into service calls, and answers into text and exit status."""
