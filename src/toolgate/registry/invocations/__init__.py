"""The queue of invocations: the contract, its rules, and its implementation in SQL"""
