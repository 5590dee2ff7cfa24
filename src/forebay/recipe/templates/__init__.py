"""Chat templates as typed trees: each turns a conversation into pieces, never into a string."""
