"""What changes something: measures, imports, corrects, deletes."""
