"""Server definitions of other programs, read and written"""
