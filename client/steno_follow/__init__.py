"""Other programs' transcripts and session folders, brought into a root and followed.

`Importer` brings one file or folder up to its present end, and `Watcher` many of them again and
again; both do the same with a file. The rest of the room serves these two. The readers of the
formats are in `steno_agents`; here files are opened, and the daemon is asked to write.

source_tree         a folder of strangers' files, read without following links
compressed          transcripts that their program compressed
recognition         the program that wrote a file, from its first lines
foreign_sources     one transcript: where it is, what it is, how it is called
session_folders     session folders of kimi-cli and steno
opencode_database   the sessions in a database as files
codex_rollouts      the rollouts that another one continues
companions          files beside a transcript
session_indexes     names that a program keeps in a file for all its sessions
known_files         the files that are sessions already
following           a transcript and its session: what was added to the file is appended
taking_in           a new session is copied aside, and the daemon moves it to its place
work_dirs           the work directories of kimi-cli
file_watch          the files that changed
inotify             notes of the kernel that files have changed
opencode_mirror     the sessions of a database that changed
watching            the files that changed, followed
hooks               the transcript that the hook of a program names
masking             masks in what an import writes itself
limits              bounds
"""
