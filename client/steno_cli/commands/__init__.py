"""The commands: functions with their command lines, those of one subject in one module."""
