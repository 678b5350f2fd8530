"""The command line: a client of the REST API like any other. Only `up`, `control` and `node` build a process.

- `root`           finds the module of a command, runs it, and turns failures into exit codes
- `command`        what every command is made of: options, output, failure
- `commands`       the commands, one module a noun; `record_commands` has what all kinds of records share
- `server_add`     `toolgate servers add`
- `rest`, `files`  the REST client; the files that people write
- `contexts`       named gateways: which one a command calls, with which key
- `tool_arguments` the arguments of a tool call, typed by its schema
- `help`           the text of `--help`
- `render`         tables and sentences, pure; text from servers is escaped there
- `demo`           `toolgate up --demo`

No other package imports this one. Nothing here decides policy.
"""

from toolgate.cli.root import main

__all__ = ["main"]
