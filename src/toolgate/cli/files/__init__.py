"""Files that people write and commands read: records, modules, packages; and the settings of other programs.

Nothing here checks what a record says; the gateway does. A file of another program is replaced whole or not
at all.
"""
