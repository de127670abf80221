"""A cell of rows: look up its ids, encode its texts, write its parts."""
