"""The vocabulary that all packages share. It imports nothing of ours and does nothing by itself."""
