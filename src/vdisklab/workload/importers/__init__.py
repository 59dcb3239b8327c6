"""Results of programs that others ran: text in, outcomes out; no unit and no zero is guessed."""
