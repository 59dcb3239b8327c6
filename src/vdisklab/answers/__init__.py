"""Answers: values that say all that is shown of them. The JSON of an answer is the answer."""
