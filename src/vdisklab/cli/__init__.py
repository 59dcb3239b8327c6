"""The edge: arguments in, text and exit status out."""
