"""Other programs' transcripts and session folders, brought into a root and followed.

`taking_in` brings one file or folder up to its present end, and `watch` does so with
many of them again and again; both do the same with a file. The rest of the room serves these two.
The readers of the formats are in `steno_agents`; here files are opened, and the daemon is asked to
write.

watch               places that are watched until a signal
watching            the files that changed, followed
taking_in           one file or folder brought up to its end, new or known
hooks               the transcript that the hook of a program names

search              the transcripts in a folder
session_folders     session folders of kimi-cli and steno
foreign_source      one transcript: where it is, what it is, how it is called
first_import        the files of a new session, written aside
following           a session that exists: what was added to its file is appended
file_stream         ... to the stream with the bytes of the file
context             ... and to the context
outcomes            what was done, and what there is to say of it
known_files         the files that are sessions already
source_notes        the notes of a session about its file

file_watch          the files that changed
inotify             notes of the kernel that files have changed
opencode_database   the sessions in a database as files
opencode_mirror     those that changed

recognition         the program that wrote a file, from its first lines
naming              the ids of sessions that come from transcripts
companions          files beside a transcript
codex_rollouts      the rollouts that another one continues
session_indexes     names that a program keeps in a file for all its sessions
work_dirs           the work directories of kimi-cli
source_tree         a folder of strangers' files, read without following links
compressed          transcripts that their program compressed
lines               whole lines, each of them in memory once
aside               folders in which copies are prepared
masking             masks in what an import writes itself
limits              bounds
"""
