"""Approvals of tool calls: the contract, its rules, and its implementation in SQL"""
