"""Measures Forebay beside other engines on the same machine, taking turns. Peers are processes, never imported."""
