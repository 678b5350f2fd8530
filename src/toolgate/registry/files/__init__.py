"""The directory of server files and how it is applied to the store"""
