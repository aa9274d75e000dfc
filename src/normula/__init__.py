"""normula: one line of text says where a network normalises."""
