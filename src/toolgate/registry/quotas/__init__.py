"""What keys and tasks use over time: the contract and its implementation in SQL"""
