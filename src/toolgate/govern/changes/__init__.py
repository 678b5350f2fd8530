"""How records change.

Who may write what, what a change would do, the checks, the commit, and the way back.
"""
