"""The command line: a module per command. Commands import what they need when they run, so that --help is quick."""
