"""Plans of rewrites, made before any file is changed."""
