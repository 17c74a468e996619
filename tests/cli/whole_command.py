"""Parse a command line as the command would, without running it."""

import shlex

from typer.main import get_command

from headway.cli.app import app


def parse(line):
    """Parse a line such as `headway plan --ttft 500`. Raises click's UsageError if it lacks what
    the command requires, or has an option that the command does not know."""
    _, *words = shlex.split(line.partition(" > ")[0])
    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    command.make_context(line, words)
