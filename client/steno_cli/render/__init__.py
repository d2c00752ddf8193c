"""What a command prints: its streams, tables, progress, pager and Markdown on a terminal."""
