"""The parts that all verbs share: the program around them, options, and the printing of answers."""
