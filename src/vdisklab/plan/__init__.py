"""What was asked, as pure values: no file is read, no program is run."""
