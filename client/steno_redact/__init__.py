"""Masks for secrets in what is shown or sent; pure.

patterns    the built-in patterns, and those of `config.toml`
redactor    finds and masks what the patterns match, in texts and JSON values
limits      the bounds
"""
