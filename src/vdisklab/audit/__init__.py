"""An existing configuration as disk paths, and what is doubtful about it. Pure."""
