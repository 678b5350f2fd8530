"""The SQL tables, what is done to them in one transaction, and the two engines that run it"""
