"""The operating systems of guests: the micro guest, and the user's Linux or Windows."""
