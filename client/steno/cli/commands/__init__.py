"""The handlers of the subcommands, imported when they are called."""
