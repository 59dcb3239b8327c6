"""Views: the columns and sentences of answers, on a terminal and on a page."""
