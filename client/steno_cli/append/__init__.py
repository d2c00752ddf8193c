"""The lines of stdin that `steno append` writes, and the records that it finds in them."""
