"""Files that people write and commands read or change: records, packages, modules, settings of clients."""
