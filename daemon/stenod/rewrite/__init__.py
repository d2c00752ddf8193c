"""Plans of rewrites: the bytes of the new file, decided before the file is touched."""
