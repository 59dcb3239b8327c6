"""From runs to answers: values in, values out; no files, no text."""
