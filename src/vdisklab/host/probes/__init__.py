"""What this machine can do, found out by trying."""
