"""The live page: a web server that reads answers and views, and changes nothing."""
