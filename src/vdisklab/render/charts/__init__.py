"""Charts: specification, drawing, and the articles' figures."""
