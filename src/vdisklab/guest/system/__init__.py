"""The operating systems inside guests: micro guest, the user's Linux or Windows."""
