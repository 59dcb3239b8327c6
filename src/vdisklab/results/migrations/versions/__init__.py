"""One script per schema version, numbered; a script that was released is never changed."""
