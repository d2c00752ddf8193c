"""Sessions that come from outside or go there, as files and folders."""
