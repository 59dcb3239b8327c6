"""Records what a running guest asks of its disk: trace events on, waited for, off again."""
