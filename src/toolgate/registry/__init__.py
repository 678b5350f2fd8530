"""The revisioned store of everything governed, its history and watch, and the directory of server files."""
