"""The commands, one a module: its command line in `add_parser`, its work in `run`."""
