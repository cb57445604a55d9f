"""Commands, run in this process."""

import json

from click.testing import CliRunner

from chunkmill.cli.main import main


def run(*args, code=0):
    result = CliRunner().invoke(main, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def run_json(*args, code=0):
    return json.loads(run(*args, "--json", code=code).stdout)
